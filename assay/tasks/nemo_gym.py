"""Competitive programming in NeMo Gym's rows: the format of Nemotron's coding data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from assay.tasks import task_set
from assay.tasks.rows import PublicSet, Row
from assay.tasks.stdio import exchanges, program_task
from assay.types import Task

NEMO_GYM = PublicSet(
    "nemo_gym", "nemo_gym/code_gen/example.jsonl", "nvidia/Nemotron-RL-coding-competitive_coding"
)


@task_set
def nemo_gym(split: str = "all") -> Iterator[Task]:
    """Competitive programming in NeMo Gym's format: programs that read and print."""
    return map(task_of, NEMO_GYM.rows(split))


def task_of(row: Row) -> Task:
    """A row with `responses_create_params` (the dialogue) and `verifier_metadata` (unit_tests:
    inputs, outputs).

    Raises DataError when a field is missing or malformed.
    """
    request, metadata = row.table("responses_create_params"), row.table("verifier_metadata")
    if not request.fields or "unit_tests" not in metadata.fields:
        raise row.wrong(how_to_read(row))
    language = row.language(metadata.fields)
    prompt = prompt_of(row)
    tests = metadata.table("unit_tests")
    checks = exchanges(row, "unit_tests", tests.fields.get("inputs"), tests.fields.get("outputs"))
    name = str(row.fields.get("hash_id") or row.fields.get("id"))
    return replace(program_task(name, prompt, checks), language=language)


def set_of(row: Row) -> str:
    """The task set that reads a row of NeMo Gym's; empty where none does."""
    request, metadata = row.table("responses_create_params"), row.table("verifier_metadata")
    if "instance" in row.fields:
        return "swerl_gen"
    if request.table("metadata").fields.get("instance_dict"):
        return "swe_bench"
    if "unit_tests" in metadata.fields:
        return "nemo_gym"
    if "code_prompt" in metadata.fields:
        return "bigcodebench"
    return "nemo_gym_math" if {"question", "expected_answer"} <= row.fields.keys() else ""


def how_to_read(row: Row) -> str:
    """What a row is, and which task set reads it, or that none does."""
    if not (set_name := set_of(row)):
        fields = ", ".join(row.fields) or "none"
        return (
            "no row that assay reads: it has neither tests (verifier_metadata.unit_tests), nor an"
            " answer (question and expected_answer), nor a repository (instance); its environment"
            f" judges it, which assay does not run (the row's fields: {fields})"
        )
    file = row.where.rpartition(", ")[0] or "FILE"
    return f"a row of {set_name}; read it as the task set {set_name}:{file}"


def prompt_of(row: Row) -> str:
    """The dialogue of a row as one text. Raises DataError when it is malformed."""
    request = row.table("responses_create_params")
    if isinstance(request.fields.get("input"), str):
        return request.text("input")
    return "\n\n".join(filter(None, (part.text("content") for part in request.tables("input"))))
