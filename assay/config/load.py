"""Reads settings: TOML, `base = "other.toml"`, stages, dotted overrides; every mistake is one line
that helps.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

import tomli_w
from pydantic import BaseModel, ValidationError

from assay.config.sections import RunSettings, Section
from assay.errors import SettingsError
from assay.registry import suggest

Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one settings file asks for: stages in the order they run."""

    source: Path
    """The settings file."""
    stages: tuple[RunSettings, ...]
    """At least one; without `[stages]` the file is one stage, named after its algorithm."""
    starts_anew: tuple[bool, ...]
    """Per stage: whether it names its own `policy.model` instead of going on from the stage
    before."""


def load_plan(path: Path, overrides: Sequence[str] = ()) -> Plan:
    """The stages of a settings file, with `--table.key value` applied to each (`--stages.sft.steps
    5`: to one).

    Raises SettingsError for a missing file, malformed TOML, an unknown key, a value out of range or
    one where a table belongs.
    """
    common = _read(path, ())
    changes = parse_overrides(overrides)
    _require_tables(changes, f"{path} with overrides")
    own_stages = changes.pop("stages", {})
    tables = common.pop("stages", None)
    if tables is None:
        tables = {str(common.get("algorithm", {}).get("name", "train")): {}}
    if not tables:
        raise SettingsError(f"{path}: `stages` is empty; write tables such as [stages.sft]")
    for name in own_stages:
        if name not in tables:
            raise SettingsError(
                f"unknown stage {name!r} in overrides of {path}; {suggest(name, list(tables))}"
            )
    plan: list[RunSettings] = []
    anew: list[bool] = []
    for name, own in tables.items():
        table = merge(merge(merge(common, own), changes), own_stages.get(name, {}))
        plan.append(_validate({**table, "stage": name}, path))
        anew.append(
            not plan[:-1]
            or any(
                "model" in source.get("policy", {}) for source in (own, own_stages.get(name, {}))
            )
        )
    return Plan(path, tuple(plan), tuple(anew))


def parse_overrides(words: Sequence[str]) -> Table:
    """`["--optimizer.lr", "1e-4", "--seed=3"]` as a nested table; values are TOML, or else plain
    text.

    Keys are taken as they are written: names such as `stages.my-stage` are the user's. Raises
    SettingsError for a word that is not `--table.key`, lacks its value or contradicts one before
    it.
    """
    table: Table = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) == 2:
            raise SettingsError(
                f"unexpected argument {word!r}; settings are given as --table.key value"
            )
        key, equals, value = word[2:].partition("=")
        if not equals:
            if not rest:
                raise SettingsError(f"{' '.join(word.split())} lacks its value")
            value = rest.pop(0)
        inner = table
        *parents, last = key.split(".")
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise SettingsError(f"{word!r} contradicts an earlier override of {parent!r}")
        if isinstance(inner.get(last), dict):
            raise SettingsError(f"{word!r} contradicts an earlier override within {last!r}")
        inner[last] = _value(value)
    return table


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    """`above` over `below`, table by table."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = (
            merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return merged


def dump(settings: BaseModel) -> str:
    """Settings as TOML that `load_plan` reads back."""
    return tomli_w.dumps(settings.model_dump(mode="json", exclude_none=True))


def _read(path: Path, askers: tuple[Path, ...]) -> Table:
    """The table of a file over its base's. `askers` are the files that led here, each naming the
    next as its base.
    """
    named = f"{askers[-1]}: base {str(path)!r}" if askers else f"settings file {path}"
    try:
        if path.resolve() in [file.resolve() for file in askers]:
            raise SettingsError(f"{path} is its own base; mend `base`")
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"{named} not found; write the path of a TOML file") from None
    except IsADirectoryError:
        raise SettingsError(f"{named} is a folder; write the path of a TOML file") from None
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"{named} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None
    except (
        OSError,
        ValueError,
        RuntimeError,
    ) as error:  # RuntimeError: links in a circle, tables nested too deep
        raise SettingsError(f"{named} cannot be read as TOML: {error}; mend the file") from None
    _require_tables(table, str(path))
    base = table.pop("base", None)
    if base is None:
        return table
    if not isinstance(base, str):
        raise SettingsError(
            f'{path}: `base` = {base!r} must be a path in quotes, such as base = "other.toml"'
        )
    return merge(_read(path.parent / base, (*askers, path)), table)


def _require_tables(given: Table, where: str) -> None:
    """Raises SettingsError when `given`, read from `where`, has a plain value at the place of a
    table.
    """
    stages = given.get("stages", {})
    if not isinstance(stages, dict):
        raise SettingsError(
            f"{where}: setting 'stages' = {stages!r} is no table; write tables such as [stages.sft]"
        )
    _require_table(
        {key: value for key, value in given.items() if key != "stages"}, RunSettings, "", where
    )
    for name, own in stages.items():
        _require_table(own, RunSettings, f"stages.{name}", where)


def _require_table(value: object, kind: Any, name: str, where: str) -> None:
    section = section_of(kind)
    if section is None and get_origin(kind) is not dict:
        return
    if not isinstance(value, dict):
        example = f"{name}.{_example(kind, name)}"
        raise SettingsError(
            f"{where}: setting {name!r} = {value!r} is no table; write its keys, such as"
            f" {example!r}"
        )
    for key, inner in value.items():
        place = f"{name}.{key}" if name else key
        if section is None:
            _require_table(inner, get_args(kind)[1], place, where)
        elif key in section.model_fields:
            _require_table(inner, section.model_fields[key].annotation, place, where)


def _example(kind: Any, name: str) -> str:
    section = section_of(kind)
    if section is RunSettings:
        return "algorithm.name"
    if section is not None:
        return next(iter(section.model_fields))
    if get_origin(get_args(kind)[1]) is dict:
        return "tests.weight"
    return "name" if name.endswith("algorithm") else "weight"


def section_of(annotation: Any) -> type[Section] | None:
    """The table that a setting's annotation stands for, optional or not; None for a plain value."""
    options = (annotation, *get_args(annotation))
    return next(
        (option for option in options if isinstance(option, type) and issubclass(option, Section)),
        None,
    )


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (
        ValueError,
        RecursionError,
    ):  # a whole number of thousands of digits; brackets nested too deep
        return text


def _validate(table: Table, path: Path) -> RunSettings:
    try:
        return RunSettings.model_validate(table)
    except ValidationError as error:
        raise SettingsError(
            f"{path} (stage {table['stage']!r}): {explain(error, _known)}"
        ) from None


def explain(
    error: ValidationError, known: Callable[[list[str]], Iterable[str]], *within: str
) -> str:
    """The first mistake in a table of settings, in one line.

    `known` gives the keys of the table at a place, and `within` is the place of the table that was
    validated.
    """
    first = error.errors()[0]
    place = [*within, *(str(part) for part in first["loc"])]
    name = ".".join(place)
    if first["type"] == "extra_forbidden":
        options = [".".join([*place[:-1], key]) for key in known(place[:-1])]
        return (
            f"unknown setting {name!r};"
            f" {suggest(name, options) if options else 'there are none here'}"
        )
    if first["type"] == "missing":
        return f"setting {name!r} is missing"
    message = first["msg"].removeprefix("Value error, ")
    return (
        f"setting {name!r} = {first['input']!r}: {message[:1].lower()}{message[1:]}"
        if name
        else message
    )


def _known(place: list[str]) -> Iterable[str]:
    section: type[Section] = RunSettings
    for part in place:
        section = section_of(section.model_fields[part].annotation) or section
    return section.model_fields
