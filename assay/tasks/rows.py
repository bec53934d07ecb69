"""Rows of a task set: from a file of the user's, from $ASSAY_DATA, or from the hub."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import starmap
from pathlib import Path
from typing import Any

from assay.errors import DataError
from assay.files import encodable
from assay.languages import canonical, language_named
from assay.task_specs import DataName, data_name, is_path
from assay.tasks import require_split
from assay.tasks.columns import renamed
from assay.tasks.conversation import ABSENT, decoded, loses_nulls, message_of, tools_of
from assay.tasks.data_files import ask_hub, hub_rows, read_data, read_file
from assay.types import Message, Task

log = logging.getLogger(__name__)
LANGUAGE = ("language", "programming_language", "lang")
TOLERANCE = 1e-6
"""Absolute tolerance for floats where a row names none; EvalPlus has the same."""


TAGS = {
    "difficulty": ("difficulty", "level"), "date": ("contest_date", "estimated_date"),
    "source": ("platform",), "topic": ("tags", "subject"),
}  # fmt: skip
"""Kinds of tags, and the fields of published sets that give them."""
_warned: set[str] = set()


def warn_once(text: str) -> None:
    """Log a warning. A plan may load the same rows for several stages."""
    if text not in _warned and log.isEnabledFor(logging.WARNING):
        _warned.add(text)
        log.warning("%s", encodable(text))


@dataclass(frozen=True, slots=True)
class Row:
    """One row, and where it stands."""

    fields: Mapping[str, Any]
    where: str
    """For messages: `my.jsonl, line 3`."""

    @property
    def place(self) -> str:
        """Where it stands in its file, as a part of an id: `line_3`."""
        return self.where.rpartition(", ")[2].replace(" ", "_")

    def text(self, name: str, default: str | None = None) -> str:
        """A field that is a string, line ends normalised. Raises DataError when it is missing
        without a default.
        """
        return _normalised(self._string(name, default))

    def diff(self, name: str, default: str | None = None) -> str:
        """A field that is a diff, whose lines end as those of its files. Raises DataError as
        `text`.
        """
        return self.program(name, "diff", default)

    def program(self, name: str, language: str, default: str | None = None) -> str:
        """A field that is a program or reply in a language, with the line ends that it is judged
        with. Raises DataError as `text`.
        """
        # an editor's mark of the encoding is no part of a program
        text = self._string(name, default).removeprefix("\ufeff")
        return language_named(language).with_own_line_ends(text)

    def _string(self, name: str, default: str | None) -> str:
        value = self.fields.get(name)
        if value is None and default is not None:
            return default
        if value is None:
            fields = ", ".join(self.fields) or "none"
            raise self.wrong(f"{name!r} is missing; make it a string (the row's fields: {fields})")
        if not isinstance(value, str):
            raise self.wrong(f"{name!r} is {_kind(value)}; make it a string")
        return self.encodable(name, value)

    def answer(self, name: str) -> str:
        """A field that is a string or a number. Raises DataError for anything else."""
        value = self.fields.get(name)
        return str(value) if type(value) in (int, float) else self.text(name)

    def texts(self, name: str, what: str = "a list of strings") -> tuple[str, ...]:
        """A field that is a list of strings; empty when absent. Raises DataError for anything
        else, which asks for `what`.
        """
        texts = self.items(name, str, what)
        return tuple(_normalised(self.encodable(name, text)) for text in texts)

    def table(self, name: str) -> Row:
        """A field that is an object, or one as JSON; empty when absent. Raises DataError for
        anything else.
        """
        value: Any = self.fields.get(name) or {}
        with suppress(ValueError, RecursionError):
            value = json.loads(value) if isinstance(value, str) else value
        if not isinstance(value, dict):
            raise self.wrong(f"{name!r} is {_kind(value)}; make it an object")
        return Row(value, f"{self.where}, {name!r}")

    def tables(self, name: str) -> list[Row]:
        """A field that is a list of objects; empty when absent. Raises DataError for anything
        else.
        """
        tables = enumerate(self.items(name, dict, "a list of objects"), start=1)
        return [Row(table, f"{self.where}, {name!r} {number}") for number, table in tables]

    def items(self, name: str, kind: type = object, what: str = "a list") -> list[Any]:
        """A field that is a list of one kind; empty when absent. Raises DataError for anything
        else, which asks for `what`.
        """
        value = self.fields.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise self.wrong(f"{name!r} is {_kind(value)}; make it {what}")
        return value

    def messages(self, name: str) -> tuple[Message, ...]:
        """A field that is a conversation, as TRL and the chat APIs write it; a reply of `weight` 0
        is not learned. Raises DataError.
        """
        value = decoded(self.fields.get(name))
        items: list[Any] = [*map(decoded, value)] if isinstance(value, list) and value else [{}]
        messages = []
        for number, item in enumerate(items, start=1):
            try:
                message = message_of(item)
            except ValueError as error:
                raise self.wrong(f"{name!r} {number}{error}") from None
            except RecursionError:
                raise self.wrong(f"{name!r} {number} is nested too deeply; fix it") from None
            self.encodable(name, json.dumps(item, ensure_ascii=False, default=str))
            if loses_nulls(message, item):
                warn_once(
                    f"{self.where.rpartition(', ')[0]}: arguments of tool calls that are null are"
                    " left out, since tables fill them in for the arguments of other tools; to keep"
                    " a null, write the arguments as JSON text"
                )
            messages.append(message)
        return tuple(messages)

    def tools(self) -> tuple[dict[str, Any], ...]:
        """The field `tools` as chat templates take it; empty when absent. Raises DataError."""
        value = self.fields.get("tools")
        if value in ABSENT or (value := decoded(value)) in ABSENT:
            return ()
        try:
            tools = tools_of(value)
        except ValueError as error:
            raise self.wrong(f"'tools'{error}") from None
        except RecursionError:
            raise self.wrong("'tools' is nested too deeply; fix it") from None
        self.encodable("tools", json.dumps(tools, ensure_ascii=False, default=str))
        return tools

    def encodable(self, name: str, text: str, errors: str = "strict") -> str:
        """`text`, which is part of a field. Raises DataError where UTF-8 cannot encode it."""
        try:
            text.encode("utf-8", errors)
        except UnicodeEncodeError as error:
            raise self.wrong(f"{name!r} holds half a character ({error.reason}); fix it") from None
        return text

    def language(self, *more: object) -> str:
        """The language that the row, or one of the tables `more`, names; else `python`. Raises
        DataError for an unknown one.
        """
        for table in [table for table in (self.fields, *more) if isinstance(table, Mapping)]:
            for name in LANGUAGE:
                if language := table.get(name):
                    try:
                        return canonical(str(language))
                    except DataError as error:
                        raise self.wrong(f"{name!r}: {error}") from None
        return "python"

    def require_python(self, *more: object) -> None:
        """Raises DataError where the row, or one of the tables `more`, names another language."""
        if (language := self.language(*more)) != "python":
            raise self.wrong(
                f"its language is {language!r}, but tests of this form are judged in Python only"
            )

    def wrong(self, why: str) -> DataError:
        """The error that blames this row, in one line."""
        return DataError(f"{self.where}: {' '.join(why.splitlines())}")


class LeftOutError(Exception):
    """A well-formed row that is no task which can be judged; says which rows these are."""


def tagged(task: Task, row: Row) -> Task:
    """The task with the tags that its row gives: `tags` of its own, and what published sets call
    difficulty, date, source and topic. Raises DataError for `tags` that are no texts.
    """
    own_tags = row.fields.get("tags")
    tags = {
        kind: next(filter(None, (_tag(row.fields.get(name)) for name in names)), "")
        for kind, names in TAGS.items()
    }
    if isinstance(own_tags, dict):
        if not all(isinstance(text, str) for text in own_tags.values()):
            raise row.wrong('\'tags\' must have texts as values; write {"topic": "graphs"}')
        tags |= own_tags
    tags = {kind: text[:10] if kind == "date" else text for kind, text in tags.items() if text}
    return replace(task, tags={**task.tags, **tags}) if tags else task


def _tag(value: object) -> str:
    """A field as a tag: a text, a number or a list of texts, also one that is written as text."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).strip("[]").replace("'", "") if isinstance(value, str | float | int) else ""


def usable_tasks(rows: Iterable[Row], task_of: Callable[[Row], Task]) -> Iterator[Task]:
    """The tasks of the rows. One warning counts those that are left out, by reason."""
    reasons: Counter[str] = Counter()
    where, count = "", 0
    try:
        for count, row in enumerate(rows, start=1):  # noqa: B007  counted for the warning
            where = row.where.rpartition(", ")[0]
            try:
                task = task_of(row)
            except LeftOutError as reason:
                reasons[str(reason)] += 1
            else:
                yield tagged(task, row)
    finally:
        if reasons:
            each = ", ".join(f"{number} {reason}" for reason, number in reasons.items())
            warn_once(f"{where}: left out {reasons.total()} of {count} rows: {each}")


def _normalised(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _kind(value: object) -> str:
    return "missing" if value is None else f"a {type(value).__name__} ({str(value)[:40]})"


@dataclass(frozen=True, slots=True)
class PublicSet:
    """A published set, and where it lies. `{}` in `file`, `hub`, `config` and `part` stands for the
    split, or for what `splits` maps it to.
    """

    name: str
    """Of the task set."""
    file: str
    """Below $ASSAY_DATA: `mbpp/mbpp.jsonl.gz`."""
    hub: str
    """The data set's name on the hub."""
    config: str | None = None
    """Its configuration on the hub, where it has several."""
    splits: Collection[str] | Mapping[str, object] = ("all",)
    """The splits that the task set knows; each has its rows among the same ones."""
    part: str | None = None
    """The only one of the hub's splits that holds these rows; None for all of them."""

    def rows(self, split: str) -> Iterator[Row]:
        """All rows: of the file that `split` names, else from $ASSAY_DATA when it holds the file,
        else from the hub.

        Raises SettingsError for an unknown split, DataError when the rows are nowhere.
        """
        if is_path(split):
            return file_rows(split)
        require_split(self.name, split, self.splits)
        folder = os.environ.get("ASSAY_DATA")
        part = self.splits[split] if isinstance(self.splits, Mapping) else split
        names: dict[str, Any] = {
            "file": self.file, "hub": self.hub, "config": self.config, "part": self.part
        }  # fmt: skip
        here = replace(self, **{key: name and name.format(part) for key, name in names.items()})
        if folder is None:
            return _hub_rows(here, "ASSAY_DATA is not set")
        if not Path(folder).is_dir():
            raise DataError(f"ASSAY_DATA is {folder}, which is no folder; fix or unset it")
        file = Path(folder) / here.file
        return file_rows(file) if file.is_file() else _hub_rows(here, f"{file} does not exist")


def file_rows(source: str | Path | DataName) -> Iterator[Row]:
    """The rows of a file, or of whatever a name stands for, with its columns renamed. A field that
    is null is absent: tables have all in every row.

    Raises DataError when nothing can be read or a row is no JSON object, SettingsError for a split
    that is not there.
    """
    name = data_name(source) if isinstance(source, str) else source
    rows = read_file(name) if isinstance(name, Path) else read_data(name)
    if isinstance(name, DataName) and name.columns:
        rows = renamed(rows, name)
    for where, fields in rows:
        if not isinstance(fields, dict):
            raise DataError(f"{where}: a row is a JSON object, not {_kind(fields)}")
        yield _row(where, fields)


def _row(where: str, fields: Mapping[str, Any]) -> Row:
    return Row({name: value for name, value in fields.items() if value is not None}, where)


def _hub_rows(public: PublicSet, why: str) -> Iterator[Row]:
    splits: Mapping[str, Any] = ask_hub(
        public.hub,
        lambda datasets: datasets.load_dataset(public.hub, public.config, split=public.part),
        why,
        f"set ASSAY_DATA to a folder that holds {public.file}",
    )
    splits = splits if public.part is None else {public.part: splits}
    return starmap(_row, hub_rows(public.hub, splits))
