"""Where tasks come from: one file per set, read by `load("mbpp:train")`.

A set is a generator of tasks under @task_set; the default of its `split` is the split that
`load("mbpp")` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from assay.errors import DataError, SettingsError
from assay.judge.kinds.find import kind_of
from assay.languages import language_named
from assay.registry import Registry
from assay.suggestions import suggest
from assay.task_specs import require_set, split_spec
from assay.types import Task

task_sets: Registry[Callable[..., Iterator[Task]]] = Registry("task set", "assay.tasks")
task_set = task_sets.register


def load(spec: str, *, limit: int | None = None, judged: bool = True) -> list[Task]:
    """Returns the tasks of `spec`. It names a set such as `humaneval`, `mbpp:train` or
    `drills:test`, or rows of your own, as `my.jsonl`, `data/*.parquet`, `owner/name:train` or
    `my.csv,prompt=question,tests=asserts`.

    A set that reads rows takes a file of its format too: `humaneval:my.jsonl.gz`. `limit` keeps the
    first tasks, this many. Unless they are to be `judged`, tasks need no tests, because SFT learns
    from them. Raises SettingsError for an unknown set or split, DataError for rows that cannot be
    used or a set without tasks.
    """
    if limit is not None and limit < 1:
        raise SettingsError(f"the limit of tasks is {limit}; it must be at least 1")
    name, split = split_spec(spec)
    require_set(name)
    tasks = list(islice(task_sets[name](split) if split else task_sets[name](), limit))
    if not tasks:
        raise DataError(f"{spec} holds no tasks; check the split or the file")
    _refuse_unusable(spec, tasks, judged)
    return tasks


def require_split(name: str, split: str, names: Iterable[str]) -> None:
    """Raises SettingsError unless `split` is one that the set `name` has."""
    splits = list(names)
    if split not in splits:
        raise SettingsError(f"unknown split {split!r} of {name}; {suggest(split, splits)}")


def _refuse_unusable(spec: str, tasks: list[Task], judged: bool) -> None:
    known_ids: set[str] = set()
    for row, task in enumerate(tasks, start=1):
        if judged and not task.checks:
            raise DataError(
                f"{spec}, row {row}: task {task.id!r} has no tests, so only SFT can use it; add"
                " tests, or remove the row"
            )
        if task.checks:
            _refuse_language(f"{spec}, row {row}", task)
        if task.id in known_ids:
            raise DataError(
                f"{spec}, row {row}: the id {task.id!r} occurs twice; ids must be unique"
            )
        known_ids.add(task.id)


def _refuse_language(where: str, task: Task) -> None:
    try:
        language = language_named(task.language)
    except DataError as error:
        raise DataError(f"{where}: task {task.id!r}: {error}") from None
    if not all(kind_of(check).judges(language) for check in task.checks):
        raise DataError(
            f"{where}: task {task.id!r}: a program in {language.title} can only be judged by what"
            " it reads and prints, or by calls; give it `exchanges`, or `inputs` with"
            " `expected`"
        )


def task_from_dict(fields: Mapping[str, object]) -> Task:
    """Returns a task of a row of data, for example `{"prompt": "...", "tests": ["assert f(1) ==
    2"], "entry_point": "f"}`.

    The fields are those of a row of JSON lines (see docs/data.md). `id` and `prompt` may be absent.
    Unknown fields are ignored with a warning. Raises DataError where a field is missing or
    malformed.
    """
    from assay.tasks.jsonl import task_of, unknown_fields, warn_of_unknown
    from assay.tasks.rows import Row

    if not isinstance(fields, Mapping):
        raise DataError(f"a task is a dict of fields, not {fields!r:.80}")
    row = Row({"id": "task", "prompt": "", **fields}, "task_from_dict")
    warn_of_unknown(unknown_fields(row), row.where)
    return task_of(row)
