"""Mistakes in settings, each explained in one line; knows what other trainers call a setting."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import ValidationError

from assay.config.section import Section
from assay.config.sections import RunSettings
from assay.errors import SettingsError
from assay.registry import edits, suggest

OTHER_NAMES = Path(__file__).with_name("other_names.toml")
WANTED = {
    "int": "a whole number", "float": "a number", "finite": "a finite number",
    "bool": "true or false", "string": "text in quotes", "tuple": "a list in brackets",
    "list": "a list in brackets", "dict": "a table", "model": "a table",
}  # fmt: skip
"""What a setting must be, by the first word of the validator's error."""

ABSENT = {
    "context parallelism: a sequence must fit into one GPU's memory": (
        "context_parallel", "context_parallel_size", "cp", "cp_size", "sequence_parallel",
        "sequence_parallel_size", "ulysses_sequence_parallel_size",
    ),
    "pipeline parallelism: use more ranks, which shard every weight": (
        "pipeline_parallel", "pipeline_parallel_size", "pp", "pp_size",
        "pipeline_model_parallel_size",
    ),
    "offload to the CPU: use more ranks, or train adapters (policy.lora)": (
        "cpu_offload", "fsdp_cpu_offload", "param_offload", "optimizer_offload", "offload_policy",
        "offload_params", "offload_optimizer",
    ),
    "servers that sleep while the learner uses their GPU: give them GPUs of their own (engine.gpus)"
    ", or let the policy generate (engine.name = 'torch')": (
        "vllm_enable_sleep_mode", "enable_sleep_mode", "sleep_mode", "sleep_level",
        "free_cache_engine", "colocate", "colocated",
    ),
}  # fmt: skip
"""What other trainers have a setting for and assay has not, with what to do."""


def refusal(error: ValidationError, known: Iterable[str], *within: str) -> SettingsError:
    """The first mistake in a table of settings in one line, unknown keys before all others.

    `known` are the settings of the table as dotted names, and `within` is its place.
    """
    first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    kind = first["type"]
    place = (*within, *map(str, first["loc"]))
    name = ".".join(place)
    if kind == "extra_forbidden":
        names = [".".join([*within, key]) for key in known]
        options = [one for one in names if one.rpartition(".")[0] == name.rpartition(".")[0]]
        return SettingsError(f"unknown setting {name!r}{_hint(name, options)}", place)
    if kind == "missing":
        return SettingsError(f"setting {name!r} is missing", place)
    message = first["msg"].replace("Input should", "must").removeprefix("Value error, ")
    if kind == "string_pattern_mismatch":
        message = "must be letters, digits, '_', '-' and '.', and must not start with '.' or '-'"
    elif kind.split("_")[0] in WANTED:
        message = f"must be {WANTED[kind.split('_')[0]]}"
    value = f"= {first['input']!r} " if message.startswith("must") else ""
    return SettingsError(f"setting {name!r} {value}{message}" if name else message, place)


def _hint(name: str, options: list[str]) -> str:
    last = name.rpartition(".")[2]
    others = {
        theirs: ours
        for ours, names in tomllib.loads(OTHER_NAMES.read_text()).items()
        for theirs in names
    }
    if not any(edits(name, option) == 1 for option in options):
        if last in others:
            return f": assay calls it {others[last]}"
        if absent := [what for what, names in ABSENT.items() if last in names]:
            return f": assay has no {absent[0]}"
        if moved := [key for key in all_keys() if key.rpartition(".")[2] == last and key != name]:
            return f"; did you mean {' or '.join(map(repr, moved))}?"
    return f"; {suggest(name, options) if options else 'there are none here'}"


def all_keys(section: type[Section] = RunSettings, *place: str) -> Iterator[str]:
    """The settings of a run as dotted names: `rollout.group_size`."""
    for key, field in section.model_fields.items():
        yield ".".join([*place, key])
        if inner := section_of(field.annotation):
            yield from all_keys(inner, *place, key)


def section_of(annotation: Any) -> type[Section] | None:
    """The table that a setting's annotation stands for, optional or not; None for a plain value."""
    options = (annotation, *get_args(annotation)) if get_origin(annotation) is not dict else ()
    return next(
        (option for option in options if isinstance(option, type) and issubclass(option, Section)),
        None,
    )
