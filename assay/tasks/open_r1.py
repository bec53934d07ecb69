"""open-r1's rows: verifiable coding problems, and Codeforces with its official tests."""

from __future__ import annotations

from collections.abc import Iterator

from assay.tasks import task_set
from assay.tasks.cases import cases_of, first_block, parsed_json, task_of_cases
from assay.tasks.rows import LeftOutError, PublicSet, Row, usable_tasks
from assay.types import Task

PROBLEMS = PublicSet(
    "open_r1", "open_r1/problems.jsonl", "open-r1/verifiable-coding-problems-python"
)
FILE, SPLITS = "open_r1/codeforces_{}.jsonl", ("train", "test")
CODEFORCES = PublicSet("open_r1_codeforces", FILE, "open-r1/codeforces", "verifiable", SPLITS, "{}")


@task_set
def open_r1(split: str = "all") -> Iterator[Task]:
    """open-r1's verifiable coding problems: programs and functions, with a solution each."""
    return usable_tasks(PROBLEMS.rows(split), task_of)


@task_set
def open_r1_codeforces(split: str = "train") -> Iterator[Task]:
    """open-r1's Codeforces problems that have one right answer for each input: train, test."""
    return usable_tasks(CODEFORCES.rows(split), codeforces_task_of)


def task_of(row: Row) -> Task:
    """A row with `verification_info`, a table or its JSON, and `gold_standard_solution`.

    Raises LeftOutError for a row without usable tests, DataError for a malformed one.
    """
    tests = Row({"info": parsed_json(row, "verification_info")}, row.where).table("info")
    row.require_python(tests.fields)
    prompts = ("problem", "problem_statement", "prompt")
    solution = row.text("gold_standard_solution", default="")
    return task_of_cases(
        str(row.fields.get("problem_id") or f"open_r1/{row.place}"),
        row.text(next((name for name in prompts if name in row.fields), "problem")),
        cases_of(parsed_json(tests, "test_cases")),
        reference=first_block(solution) or None,
    )


def codeforces_task_of(row: Row) -> Task:
    """A row with the parts of a statement and `official_tests`.

    Raises LeftOutError for a row without usable tests, or whose outputs only a checker can judge;
    DataError for a malformed one.
    """
    if row.fields.get("generated_checker"):
        raise LeftOutError("with several right outputs, which only a program can check")
    if row.fields.get("input_mode") not in (None, "stdio"):
        raise LeftOutError("whose programs read a file")
    if row.fields.get("official_tests_complete") is False:
        raise LeftOutError("whose tests are cut off")
    if row.fields.get("interaction_format"):
        raise LeftOutError("whose programs talk to another one")
    parts = {"": "description", "Input": "input_format", "Output": "output_format", "Note": "note"}
    texts = [(title, row.text(name, default="")) for title, name in parts.items()]
    examples = [
        ("Example", f"Input:\n{case.text('input')}\n\nOutput:\n{case.text('output')}")
        for case in row.tables("examples")
    ]
    sections = [*texts[:3], *examples, *texts[3:]]
    body = "\n\n".join(f"## {title}\n\n{text}".removeprefix("## \n\n")
                       for title, text in sections if text)  # fmt: skip
    prompt = f"# {row.text('title')}\n\n{body}"
    cases = cases_of(parsed_json(row, "official_tests"))
    return task_of_cases(f"Codeforces/{row.text('id')}", prompt, cases)
