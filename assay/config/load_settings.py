"""Loads settings from TOML files and the command line. Every mistake is one line."""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import tomli_w
from pydantic import BaseModel, ValidationError

from assay.config.evaluation import EvaluationRun
from assay.config.messages import all_keys, is_setting, refusal, section_of, unknown_option
from assay.config.section import Section
from assay.config.sections import RunSettings
from assay.config.toml_files import (
    Place,
    Table,
    TomlFile,
    at_home,
    flat,
    has,
    read_files,
    relative_to,
)
from assay.errors import DataError, SettingsError
from assay.files import encodable
from assay.paths import require_file_place
from assay.registry import load_plugins, registry_of
from assay.suggestions import is_like, suggest
from assay.task_specs import require_set, split_spec

S = TypeVar("S", RunSettings, EvaluationRun)
Short = Mapping[str, str]
"""Short names of settings on the command line: {"samples": "evaluate.samples"}."""
LENGTHS = {"steps", "epochs"}
"""Two ways to say how long a stage trains."""
UNSET = "unset"
"""The key that names settings of a base which a file, or a command line, goes without."""


@dataclass(frozen=True, slots=True)
class Change:
    """One setting from the command line."""

    words: str
    """As it was typed: `--optimizer.lr 1e-4`."""
    table: Table
    """As a nested table."""
    text: str = ""
    """The value as it was typed."""


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


def load_plan(path: Path, overrides: Sequence[str] = (), flags: Sequence[str] = ()) -> Plan:
    """The stages of a settings file or a recipe, with `--table.key value` applied to each
    (`--stages.sft.steps 5`: to one). Imports the plug-ins that they name. `flags` are the command's
    other options, which a mistyped one may mean.

    Raises SettingsError for a missing file, malformed TOML, an unknown key or name, a value out of
    range or a value where a table belongs.
    """
    plan = Plan(
        tuple(read_files(path)), tuple(map(_with_texts, parse_overrides(overrides, flags=flags)))
    )
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
            layers = (common, table, changes, changed, {"stage": name})
            merged = reduce(over, layers)
            if merged.keys() >= LENGTHS:
                places = " and ".join(plan.source((key,), name) for key in sorted(LENGTHS))
                raise SettingsError(f"{places}: write either `steps` or `epochs`")
            stages.append(_checked(RunSettings, merged))
        model = any(has(each, ("policy", "model")) for each in (table, changed))
        starts_anew.append(model or not starts_anew)
        _require_names(plan, stages[-1])
    return replace(plan, stages=tuple(stages), starts_anew=tuple(starts_anew))


def load_evaluation(
    path: Path | None, overrides: Sequence[str], short: Short, flags: Sequence[str] = ()
) -> EvaluationRun:
    """The settings of an evaluation: of a file, which may be one of training, with `--table.key
    value` applied and `--name value` for the `short` names. Imports the plug-ins that they name.
    `flags` are the command's other options.

    Raises SettingsError as `load_plan` does.
    """
    files = tuple(read_files(path)) if path else ()
    changes_typed = parse_overrides(overrides, short, EvaluationRun, flags)
    plan = Plan(files, tuple(_with_texts(change, EvaluationRun) for change in changes_typed))
    for change in plan.changes:
        _require_tables(change.table, plan.source, EvaluationRun)
    common, changes = _layers(plan)
    training = {"stages", *RunSettings.model_fields} - EvaluationRun.model_fields.keys()
    table = {key: value for key, value in common.items() if key not in training}
    with plan.blaming(""):
        _require_tables(table, plan.source, EvaluationRun)
        changed = merge({"evaluate": {}}, table, changes)
        run = _checked(EvaluationRun, changed, short)
    _require(plan, "", [("engines", ("engine", "name"), run.engine.name),
                        ("environments", ("environment", "name"), run.environment.get("name")),
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
        merged = over(merged, deepcopy(settings))  # the files keep what is taken away here
    return merged, changes


def _checked(kind: type[S], table: Table, short: Short = MappingProxyType({})) -> S:
    """The settings in a table, with its plug-ins imported."""
    try:
        settings = kind.model_validate(table)
    except ValidationError as error:
        raise refusal(error, [*all_keys(kind), *short]) from None
    load_plugins(settings.plugins)
    _require_cache(settings.judge.verdict_cache)
    return settings


def _require_cache(name: str | None) -> None:
    """Raises SettingsError for a cache of verdicts that no file can be: every run would judge all
    programs again, and only a warning would say so.
    """
    try:
        if name:
            require_file_place(Path(name))
    except (OSError, DataError) as error:
        advice = f"{name!r}: {error.strerror}; name a file" if isinstance(error, OSError) else error
        raise SettingsError(
            f"setting 'judge.verdict_cache' = {advice}", ("judge", "verdict_cache")
        ) from None


def _require_names(plan: Plan, settings: RunSettings) -> None:
    names = [
        ("algorithms", ("algorithm", "name"), settings.algorithm["name"]),
        ("engines", ("engine", "name"), settings.engine.name),
        ("environments", ("environment", "name"), settings.environment.get("name")),
        *(("rewards", ("rewards", name), name) for name in settings.rewards),
        *(("callbacks", ("callbacks", name), name) for name in settings.callbacks),
        ("choices", ("tasks", "choice", "name"), settings.tasks.choice.get("name", "uniform")),
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
                (require_set if folder == "tasks" else registry_of(folder).require)(name)


def words_of(changes: Mapping[str, Any]) -> list[str]:
    """Settings by their dotted names as words of a command line, `--table.key value`."""
    return [word for key, value in changes.items() for word in (f"--{key}", json.dumps(value))]


def parse_overrides(
    words: Sequence[str],
    short: Short = MappingProxyType({}),
    kind: type[Section] = RunSettings,
    flags: Sequence[str] = (),
) -> Iterator[Change]:
    """`["--optimizer.lr", "1e-4", "--seed=3"]` as changes; values are TOML, or else plain text.

    Keys are taken as they are written, but `short` ones: names such as `stages.my-stage` are the
    user's. Raises SettingsError for a word that is not `--table.key` or lacks its value, which may
    be a mistyped one of `flags`, options without a value.
    """
    options = {*short, *flags}
    rest = list(words)
    while rest:
        word = typed = rest.pop(0)
        if not word.startswith("--") or len(word) == 2:
            raise SettingsError(
                f"unexpected argument {word!r}; settings are given as --table.key value"
            )
        key, equals, value = word[2:].partition("=")
        is_known = key in options or is_setting(key, kind)
        lacks_value = not equals and (not rest or _is_option(rest[0], options, kind, is_known))
        if not is_known and (lacks_value or is_like(key, flags)):
            raise unknown_option(key, kind, options)
        if lacks_value:
            raise SettingsError(f"{' '.join(word.split())} lacks its value")
        if not equals:
            value = rest.pop(0)
            typed = f"{word} {value}"
        if encodable(typed) != typed:  # no settings file of a run could hold it
            raise SettingsError(f"{encodable(typed)}: the value is no UTF-8; rename the file")
        table = _value(value)
        for name in reversed(short.get(key, key).split(".")):
            table = {name: table}
        yield Change(" ".join(typed.split()), at_home(table), value)


def _is_option(word: str, options: Set[str], kind: type[Section], is_known: bool) -> bool:
    """Whether a word is another option, not the value of the one before; after an unknown one,
    every word with dashes is.
    """
    name = word.removeprefix("--").partition("=")[0]
    return word.startswith("--") and (not is_known or name in options or is_setting(name, kind))


def _with_texts(change: Change, kind: Any = RunSettings) -> Change:
    """The change with its value as it was typed, where the setting is a text: a run may be named
    7, 1e3 or true.
    """
    path = list[str]()
    value: Any = change.table
    while isinstance(value, dict) and len(value) == 1:
        ((key, value),) = value.items()
        path.append(key)
        section = section_of(kind)
        if key == "stages" and len(path) == 1:
            kind = dict[str, RunSettings]
        elif section is not None and key in section.model_fields:
            kind = section.model_fields[key].annotation
        elif section is None and get_origin(kind) is dict:
            kind = get_args(kind)[1]
        else:
            return change
    if isinstance(value, str | list | dict) or not _is_text(kind):
        return change
    table: Any = change.text
    for key in reversed(path):
        table = {key: table}
    return replace(change, table=table)


def _is_text(kind: Any) -> bool:
    """Whether a setting of this type is a text or a list of texts, and no number."""
    if kind is str or (isinstance(kind, type) and issubclass(kind, Path)):
        return True
    if get_origin(kind) is Literal:
        return all(isinstance(choice, str) for choice in get_args(kind))
    parts = [part for part in get_args(kind) if part not in (type(None), ...)]
    parts = parts[:1] if get_origin(kind) is Annotated else parts
    return bool(parts) and get_origin(kind) is not dict and all(map(_is_text, parts))


def merge(*tables: Mapping[str, Any]) -> Table:
    """Tables over one another, the last on top."""
    merged: Table = {}
    for table in tables:
        for key, value in table.items():
            both = isinstance(value, dict) and isinstance(merged.get(key), dict)
            merged[key] = merge(merged[key], value) if both else value
    return merged


def over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    """Two layers of settings: what the upper one says of a run's length, in steps or in epochs,
    replaces what the lower one says, for the run and for each stage.
    """
    base = {key: value for key, value in below.items()
            if key not in LENGTHS or LENGTHS.isdisjoint(above)}  # fmt: skip
    merged = merge(base, above)
    stages = [layer.get("stages") for layer in (below, above)]
    if isinstance(stages[0], dict) and isinstance(stages[1], dict):
        merged["stages"] = {
            name: over(*pair) if all(isinstance(table, dict) for table in pair) else pair[1]
            for name in stages[0] | stages[1]
            for pair in [(stages[0].get(name, {}), stages[1].get(name, {}))]
        }
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
