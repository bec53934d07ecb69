"""Reads settings: TOML, `base = "other.toml"`, stages, dotted overrides; every mistake is one line that helps."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, ValidationError

from assay.config.sections import RunSettings
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
    """Per stage: whether it names its own `policy.model` instead of going on from the stage before."""


def load_plan(path: Path, overrides: Sequence[str] = ()) -> Plan:
    """The stages of a settings file, with `--table.key value` applied to each (`--stages.sft.steps 5`: to one).

    Raises SettingsError for a missing file, malformed TOML, an unknown key or a value out of range.
    """
    common = _read(path, ())
    changes = parse_overrides(overrides)
    own_stages = changes.pop("stages", {})
    stages = common.pop("stages", None)
    tables = stages if stages is not None else {str(common.get("algorithm", {}).get("name", "train")): {}}
    if not isinstance(tables, dict) or not tables:
        raise SettingsError(f"{path}: `stages` must hold tables such as [stages.sft]")
    for name in own_stages:
        if name not in tables:
            raise SettingsError(f"unknown stage {name!r} in --stages.{name}; {suggest(name, list(tables))}")
    plan: list[RunSettings] = []
    anew: list[bool] = []
    for name, own in tables.items():
        table = merge(merge(merge(common, own), changes), own_stages.get(name, {}))
        plan.append(_validate({**table, "stage": name}, path))
        anew.append(
            not plan[:-1] or any("model" in source.get("policy", {}) for source in (own, own_stages.get(name, {})))
        )
    return Plan(path, tuple(plan), tuple(anew))


def parse_overrides(words: Sequence[str]) -> Table:
    """`["--optimizer.lr", "1e-4", "--seed=3"]` as a nested table; values are TOML, or else plain text.

    Raises SettingsError for a word that is not `--table.key` or lacks its value.
    """
    table: Table = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) == 2:
            raise SettingsError(f"unexpected argument {word!r}; settings are given as --table.key value")
        key, equals, value = word[2:].partition("=")
        if not equals:
            if not rest:
                raise SettingsError(f"--{key} lacks its value")
            value = rest.pop(0)
        inner = table
        *parents, last = key.replace("-", "_").split(".")
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise SettingsError(f"--{key} contradicts an earlier override of {parent!r}")
        inner[last] = _value(value)
    return table


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    """`above` over `below`, table by table."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def dump(settings: BaseModel) -> str:
    """Settings as TOML that `load_plan` reads back."""
    return tomli_w.dumps(_without_none(settings.model_dump(mode="json")))


def _read(path: Path, seen: tuple[Path, ...]) -> Table:
    if path.resolve() in seen:
        raise SettingsError(f"{path} is its own base; mend `base`")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise SettingsError(f"settings file {path} not found") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(f"{path} cannot be read as TOML: {error}") from None
    base = table.pop("base", None)
    if base is None:
        return table
    if not isinstance(base, str):
        raise SettingsError(f"{path}: `base` must be a path in quotes")
    return merge(_read(path.parent / base, (*seen, path.resolve())), table)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _validate(table: Table, path: Path) -> RunSettings:
    try:
        return RunSettings.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        place = [str(part) for part in first["loc"]]
        stage = f" (stage {table['stage']!r})"
        raise SettingsError(f"{path}{stage}: {_explain(place, first['type'], first['msg'], first['input'])}") from None


def _explain(place: list[str], kind: str, message: str, value: object) -> str:
    name = ".".join(place)
    if kind == "extra_forbidden":
        return f"unknown setting {name!r}; {_did_you_mean(place)}"
    if kind == "missing":
        return f"setting {name!r} is missing"
    message = message.removeprefix("Value error, ")
    return f"setting {name!r} = {value!r}: {message[:1].lower()}{message[1:]}" if name else message


def _did_you_mean(place: list[str]) -> str:
    section: type[BaseModel] = RunSettings
    for part in place[:-1]:
        annotation = section.model_fields[part].annotation
        options = [annotation, *get_args(annotation)]
        section = next(o for o in options if isinstance(o, type) and issubclass(o, BaseModel))
    prefix = ".".join(place[:-1])
    return suggest(".".join(place), [f"{prefix}.{name}" if prefix else name for name in section.model_fields])


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return value
