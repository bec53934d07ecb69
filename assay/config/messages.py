"""Mistakes in settings, each explained in one line; knows what other trainers call a setting."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import ValidationError

from assay.config.section import Section
from assay.config.sections import RunSettings
from assay.errors import SettingsError
from assay.suggestions import is_one_edit, suggest

OTHER_NAMES = Path(__file__).with_name("other_names.toml")
WANTED = {
    "int": "a whole number", "float": "a number", "finite": "a finite number",
    "bool": "true or false", "string": "text in quotes", "tuple": "a list in brackets",
    "list": "a list in brackets", "dict": "a table", "model": "a table",
}  # fmt: skip
"""What a setting must be, by the first word of the validator's error."""


def refusal(error: ValidationError, fields: Iterable[str], *within: str) -> SettingsError:
    """The first mistake in a table of settings in one line, unknown keys before all others.

    `fields` are the settings of the table as dotted names, and `within` is its place.
    """
    first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    kind = first["type"]
    place = (*within, *map(str, first["loc"]))
    name = ".".join(place)
    if kind == "extra_forbidden":
        names = [".".join([*within, key]) for key in fields]
        options = [key for key in names if key.rpartition(".")[0] == name.rpartition(".")[0]]
        return SettingsError(f"unknown setting {name!r}{_hint(name, options)}", place)
    if kind == "missing":
        return SettingsError(f"setting {name!r} is missing; write it as {_option(name)}", place)
    message = first["msg"].replace("Input should", "must").removeprefix("Value error, ")
    if kind == "string_pattern_mismatch":
        message = "must be letters, digits, '_', '-' and '.', and must not start with '.' or '-'"
    elif kind.split("_")[0] in WANTED:
        message = f"must be {WANTED[kind.split('_')[0]]}"
    value = f"= {first['input']!r} " if message.startswith("must") else ""
    return SettingsError(f"setting {name!r} {value}{message}" if name else message, place)


EXAMPLES = {"evaluate.tasks": "--tasks humaneval"}
"""Settings without a default, as an option with a value."""


def _option(name: str) -> str:
    return EXAMPLES.get(name, f"--{name} VALUE")


def unknown_option(key: str, kind: type[Section], others: Iterable[str]) -> SettingsError:
    """The error of a word that is neither a setting nor one of the command's `others`."""
    place = key.split(".")
    inner = ".".join(place[2:] if place[0] == "stages" else place)
    names, table = [*all_keys(kind), *others], inner.rpartition(".")[0]
    hint = _hint(inner, [name for name in names if name.rpartition(".")[0] == table])
    return SettingsError(
        f"no such option: --{' '.join(key.split())}" + re.sub(r"'([\w.-]+)'", r"--\1", hint)
    )


def _hint(name: str, options: list[str]) -> str:
    last = name.rpartition(".")[2]
    tables = tomllib.loads(OTHER_NAMES.read_text()).items()
    others = ((says, ours, names) for says, table in tables for ours, names in table.items())
    if not any(is_one_edit(name, option) for option in options):
        for says, ours, names in others:
            if last in names or name in names:
                return f": assay {says} {ours}"
        if moved := [key for key in all_keys() if key.rpartition(".")[2] == last and key != name]:
            return f"; did you mean {' or '.join(map(repr, moved))}?"
    return f"; {suggest(name, options) if options else 'there are none here'}"


def all_keys(section: type[Section] = RunSettings, *place: str) -> Iterator[str]:
    """The settings of a run as dotted names: `rollout.group_size`."""
    for key, field in section.model_fields.items():
        yield ".".join([*place, key])
        if inner := section_of(field.annotation):
            yield from all_keys(inner, *place, key)


def is_setting(key: str, kind: Any = RunSettings) -> bool:
    """Whether a dotted name leads to a setting; in the table of a plug-in every name does."""
    place = key.split(".")
    if place[0] in ("stages", "unset"):  # of files, and not of sections
        place = place[2:]
    for name in place:
        section = section_of(kind)
        if section is None:
            return get_origin(kind) is dict
        if name not in section.model_fields:
            return False
        kind = section.model_fields[name].annotation
    return True


def section_of(annotation: Any) -> type[Section] | None:
    """The table that a setting's annotation stands for, optional or not; None for a plain value."""
    options = (annotation, *get_args(annotation)) if get_origin(annotation) is not dict else ()
    return next(
        (option for option in options if isinstance(option, type) and issubclass(option, Section)),
        None,
    )
