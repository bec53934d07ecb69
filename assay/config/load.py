"""Loads settings from TOML files and the command line. Every mistake is one line."""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_origin

import tomli_w
from pydantic import BaseModel, ValidationError

from assay.config.evaluation import EvaluationRun
from assay.config.messages import all_keys, refusal, section_of
from assay.config.sections import RunSettings
from assay.config.toml_files import Place, Table, TomlFile, flat, has, read_files, relative_to
from assay.errors import SettingsError
from assay.files import split_spec
from assay.registry import load_plugins, registry_of, suggest

S = TypeVar("S", RunSettings, EvaluationRun)
Short = Mapping[str, str]
"""Short names of settings on the command line: {"samples": "evaluate.samples"}."""
UNSET = "unset"
"""The key that names settings of a base which a file, or a command line, goes without."""


@dataclass(frozen=True, slots=True)
class Change:
    """One setting from the command line."""

    words: str
    """As it was typed: `--optimizer.lr 1e-4`."""
    table: Table
    """As a nested table."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The stages of a run, and where their settings come from."""

    files: tuple[TomlFile, ...]
    """The settings file and its bases, nearest first."""
    changes: tuple[Change, ...]
    """From the command line."""
    stages: tuple[RunSettings, ...] = ()
    """In the order they run. Without `[stages]` the file is one stage, named after its
    algorithm."""
    starts_anew: tuple[bool, ...] = ()
    """Per stage: whether it has a `policy.model` of its own, instead of the weights of the stage
    before."""

    def source(self, place: Place, stage: str = "") -> str:
        """Where a setting of a stage comes from: `--rollout.top_k 4`, or `demo.toml, line 3`."""
        while place:
            for full in (("stages", stage, *place), place):
                for change in reversed(self.changes):
                    if has(change.table, full):
                        return change.words
            for full in (("stages", stage, *place), place):
                for file in self.files:
                    if has(file.table, full):
                        return file.where(full)
            place = place[:-1]
        at = str(self.files[0].path) if self.files else "the command line"
        return f"{at}, stage {stage!r}" if stage else at

    @contextmanager
    def blaming(self, stage: str, place: Place | None = None) -> Iterator[None]:
        """Adds the file and line, or the words of the command line, to a SettingsError. `place` is
        for errors that do not know theirs.
        """
        try:
            yield
        except SettingsError as error:
            blamed = place if error.place is None else error.place
            if blamed is None:
                raise
            raise SettingsError(f"{self.source(blamed, stage)}: {error}") from error.__cause__


def load_plan(path: Path, overrides: Sequence[str] = ()) -> Plan:
    """The stages of a settings file or a recipe, with `--table.key value` applied to each
    (`--stages.sft.steps 5`: to one). Imports the plug-ins that they name.

    Raises SettingsError for a missing file, malformed TOML, an unknown key or name, a value out of
    range or a value where a table belongs.
    """
    plan = Plan(tuple(read_files(path)), tuple(parse_overrides(overrides)))
    for file in plan.files:
        _require_tables(file.table, file.where)
    for change in plan.changes:
        _require_tables(change.table, plan.source)
    common, changes = _layers(plan)
    if "stage" in changes:
        raise SettingsError(
            f"{plan.source(('stage',))}: every stage runs; drop one with --unset stages.NAME,"
            " change one with --stages.NAME.steps"
        )
    stage_changes = changes.pop("stages", {})
    tables = common.pop("stages", None)
    if tables is None:
        tables = {str(common.get("algorithm", {}).get("name", "train")): {}}
    if not tables:
        raise SettingsError(f"{path}: `stages` is empty; write tables such as [stages.sft]")
    for name in stage_changes.keys() - tables.keys():
        where = plan.source(("stages", name))
        raise SettingsError(f"{where}: {path} has no stage {name!r}; {suggest(name, tables)}")
    stages: list[RunSettings] = []
    starts_anew: list[bool] = []
    for name, table in tables.items():
        changed = stage_changes.get(name, {})
        with plan.blaming(name):
            stages.append(
                _checked(RunSettings, merge(common, table, changes, changed, {"stage": name}))
            )
        model = any(has(each, ("policy", "model")) for each in (table, changed))
        starts_anew.append(model or not starts_anew)
        _require_names(plan, stages[-1])
    return replace(plan, stages=tuple(stages), starts_anew=tuple(starts_anew))


def load_evaluation(path: Path | None, overrides: Sequence[str], short: Short) -> EvaluationRun:
    """The settings of an evaluation: of a file, which may be one of training, with `--table.key
    value` applied and `--name value` for the `short` names. Imports the plug-ins that they name.

    Raises SettingsError as `load_plan` does.
    """
    files = tuple(read_files(path)) if path else ()
    plan = Plan(files, tuple(parse_overrides(overrides, short)))
    for change in plan.changes:
        _require_tables(change.table, plan.source, EvaluationRun)
    common, changes = _layers(plan)
    training = {"stages", *RunSettings.model_fields} - EvaluationRun.model_fields.keys()
    table = {key: value for key, value in common.items() if key not in training}
    with plan.blaming(""):
        _require_tables(table, plan.source, EvaluationRun)
        changed = merge({"evaluate": {}}, table, changes)
        run = _checked(EvaluationRun, changed, short)
    _require(plan, "", [("environments", ("environment", "name"), run.environment.get("name")),
                        *_task_sets(("evaluate", "tasks"), run.evaluate.tasks)])  # fmt: skip
    return run


def _layers(plan: Plan) -> tuple[Table, Table]:
    """The files over one another, and the changes of the command line. `unset` takes keys away from
    the files before it. Raises SettingsError for a key that is not there.
    """
    merged: Table = {}
    changes = merge(*(change.table for change in plan.changes))
    typed = [
        (change.words, {UNSET: change.table[UNSET]})
        for change in plan.changes
        if UNSET in change.table
    ]
    changes.pop(UNSET, None)
    for where, table in [*((str(file.path), file.table) for file in plan.files[::-1]), *typed]:
        names = table.get(UNSET, [])
        for name in names if isinstance(names, list) else [names]:
            if not has(merged, tuple(str(name).split("."))):
                offer = suggest(str(name), flat(merged))
                raise SettingsError(f"{where}: unset {name!r}, which nothing sets; {offer}")
            *tables, key = str(name).split(".")
            del reduce(dict.__getitem__, tables, merged)[key]
        settings = {key: value for key, value in table.items() if key != UNSET}
        merged = merge(merged, deepcopy(settings))  # the files keep what is taken away here
    return merged, changes


def _checked(kind: type[S], table: Table, short: Short = MappingProxyType({})) -> S:
    """The settings in a table, with its plug-ins imported."""
    try:
        settings = kind.model_validate(table)
    except ValidationError as error:
        raise refusal(error, [*all_keys(kind), *short]) from None
    load_plugins(settings.plugins)
    return settings


def _require_names(plan: Plan, settings: RunSettings) -> None:
    names = [
        ("algorithms", ("algorithm", "name"), settings.algorithm["name"]),
        ("environments", ("environment", "name"), settings.environment.get("name")),
        *(("rewards", ("rewards", name), name) for name in settings.rewards),
        *_task_sets(("tasks", "train"), settings.tasks.train),
        *_task_sets(("evaluate", "tasks"), settings.evaluate.tasks if settings.evaluate else ()),
    ]
    _require(plan, settings.stage, names)


def _task_sets(place: Place, specs: Sequence[str]) -> list[tuple[str, Place, Any]]:
    return [("tasks", place, split_spec(spec)[0]) for spec in specs]


def _require(plan: Plan, stage: str, names: Sequence[tuple[str, Place, Any]]) -> None:
    """Raises SettingsError for an unknown plug-in, without importing the others."""
    for folder, place, name in names:
        with plan.blaming(stage, place):
            if isinstance(name, str):  # environments.build refuses any other
                registry_of(folder).require(name)


def words_of(changes: Mapping[str, Any]) -> list[str]:
    """Settings by their dotted names as words of a command line, `--table.key value`."""
    return [word for key, value in changes.items() for word in (f"--{key}", json.dumps(value))]


def parse_overrides(words: Sequence[str], short: Short = MappingProxyType({})) -> Iterator[Change]:
    """`["--optimizer.lr", "1e-4", "--seed=3"]` as changes; values are TOML, or else plain text.

    Keys are taken as they are written, but `short` ones: names such as `stages.my-stage` are the
    user's. Raises SettingsError for a word that is not `--table.key` or lacks its value.
    """
    rest = list(words)
    while rest:
        word = typed = rest.pop(0)
        if not word.startswith("--") or len(word) == 2:
            raise SettingsError(
                f"unexpected argument {word!r}; settings are given as --table.key value"
            )
        key, equals, value = word[2:].partition("=")
        if not equals:
            if not rest:
                raise SettingsError(f"{' '.join(word.split())} lacks its value")
            value = rest.pop(0)
            typed = f"{word} {value}"
        table = _value(value)
        for name in reversed(short.get(key, key).split(".")):
            table = {name: table}
        yield Change(" ".join(typed.split()), table)


def merge(*tables: Mapping[str, Any]) -> Table:
    """Tables over one another, the last on top."""
    merged: Table = {}
    for table in tables:
        for key, value in table.items():
            both = isinstance(value, dict) and isinstance(merged.get(key), dict)
            merged[key] = merge(merged[key], value) if both else value
    return merged


def dump(settings: BaseModel, folder: Path | None = None, *, exclude_defaults: bool = False) -> str:
    """Settings as TOML that `load_plan` reads back from a file in `folder`; by default the working
    directory.
    """
    table = settings.model_dump(mode="json", exclude_none=True, exclude_defaults=exclude_defaults)
    return tomli_w.dumps(relative_to(folder, table) if folder else table)


def _require_tables(
    value: object, where: Callable[[Place], str], kind: Any = RunSettings, *place: str
) -> None:
    """Raises SettingsError for a plain value where a table belongs; `where` says where it is."""
    section = section_of(kind)
    if section is None and get_origin(kind) is not dict:
        return
    name = ".".join(place)
    if not isinstance(value, dict):
        example = f"{name}.{_example(kind, name)}"
        raise SettingsError(
            f"{where(place)}: setting {name!r} = {value!r} is no table; write its keys, such as"
            f" {example!r}"
        )
    for key, inner in value.items():
        if section is None:
            _require_tables(inner, where, get_args(kind)[1], *place, key)
        elif key == "stages" and not place:
            _require_tables(inner, where, dict[str, RunSettings], key)
        elif key in section.model_fields:
            _require_tables(inner, where, section.model_fields[key].annotation, *place, key)


def _example(kind: Any, name: str) -> str:
    section = section_of(kind)
    if section is not None:
        return "steps" if section is RunSettings else next(iter(section.model_fields))
    examples = {"stages": "sft.steps", "rewards": "tests.weight"}
    return examples.get(name, "weight" if name.startswith("rewards.") else "name")


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # thousands of digits; brackets nested too deep
        return text
