"""Rows of demonstrations, as SFT reads them, and the file that they are appended to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.environments import Environment
from assay.environments.shell import BASH
from assay.errors import DataError
from assay.files import remove
from assay.line_file import LineFile
from assay.types import Message, Task, as_dicts


def row_id(task: Task, number: int, seed: int) -> str:
    """The id of a row: the task's, the seed and the number of the conversation."""
    return f"{task.id}#{seed}.{number}"


class RowFile:
    """The rows of demonstrations, open to append others. Raises SettingsError if another process
    writes to the file, DataError for other rows, or for rows of another form.
    """

    def __init__(self, path: Path, environment: Environment) -> None:
        self._path, self._file = path, LineFile(path, "command")
        self._environment = environment
        self.ids: set[str] = set()
        self._known: set[str] = set()
        try:
            for line in self._file.lines:
                self._take(path, line)
        except DataError:
            self._file.close()
            raise

    def _take(self, path: Path, line: bytes) -> None:
        try:
            row = json.loads(line)
            self.ids.add(row["id"])
            self._known.add(_replies(row))
        except (ValueError, TypeError, KeyError):
            raise DataError(
                f"{path} holds other rows than demonstrations; choose another --out"
            ) from None
        form = "template" if "tools" in row else "text"
        if form != self._environment.tool_calls:
            raise DataError(
                f"{path} holds rows with --tool-calls {form}; choose that, or another --out"
            )

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if not self.ids:
            remove(self._path)  # nothing was kept

    def added(self, row: Mapping[str, Any]) -> bool:
        """Append a row, unless one of the same replies is there: then False."""
        replies = _replies(row)
        if is_new := replies not in self._known:
            self._known.add(replies)
            self.ids.add(row["id"])
            self._file.append(json.dumps(row))
        return is_new


def _replies(row: Mapping[str, Any]) -> str:
    """What tells conversations apart: the prompt and the replies, not what the machine shows."""
    first, *others = row["messages"]
    return json.dumps([first, *(each for each in others if each["role"] == "assistant")])


def row_of(id: str, conversation: Sequence[Message], environment: Environment) -> dict[str, Any]:
    """A row that SFT reads, without the result of the submission: nobody reads that."""
    messages = as_dicts(conversation)
    while messages[-1]["role"] != "assistant":
        messages.pop()
    tools = {"tools": [BASH.schema()]} if environment.tool_calls == "template" else {}
    return {"id": id, "messages": messages, **tools}
