"""Rows of demonstrations, as SFT reads them, and the file that they are appended to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.demonstrate.player import success_of
from assay.environments import Environment
from assay.environments.shell import BASH
from assay.environments.shell_texts import FORMS
from assay.errors import DataError
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
        self._path, self._environment = path, environment
        self.ids: set[str] = set()
        self._known: set[bytes] = set()
        """The digests of the replies."""
        self._file = LineFile(path, "command", b'{"id": ', self._take)

    def _take(self, line: bytes) -> None:
        try:
            row = json.loads(line)
            self.ids.add(row["id"])
            self._known.add(_digest(row))
            forms = _forms(row)
        except (ValueError, TypeError, LookupError, RecursionError, AttributeError):
            raise DataError(
                f"{self._path} holds other rows than demonstrations; choose another --out"
            ) from None
        for name, form in forms.items():
            if form != self._environment.parameters[name]:
                option = name.replace("_", "-")
                raise DataError(
                    f"{self._path} holds rows with --{option} {form}; choose that, or another --out"
                )

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close_or_remove()

    def added(self, row: Mapping[str, Any]) -> bool:
        """Append a row, unless one of the same replies is there: then False."""
        digest = _digest(row)
        if is_new := digest not in self._known:
            self._known.add(digest)
            self.ids.add(row["id"])
            self._file.append(json.dumps(row))
        return is_new


def _digest(row: Mapping[str, Any]) -> bytes:
    """What tells conversations apart: the prompt and the replies, not what the machine shows."""
    first, *others = row["messages"]
    replies = [first, *(each for each in others if each["role"] == "assistant")]
    return hashlib.sha256(json.dumps(replies).encode()).digest()


def _forms(row: Mapping[str, Any]) -> dict[str, str]:
    """The parameters of `shell` that a row was written with. Raises LookupError and ValueError for
    a row that is none of ours.
    """
    result = row["messages"][2]["content"]  # of a command that lists files, and succeeds
    (observations,) = (form for form in FORMS if result.startswith(success_of(form)))
    return {"tool_calls": "template" if "tools" in row else "text", "observations": observations}


def row_of(id: str, conversation: Sequence[Message], environment: Environment) -> dict[str, Any]:
    """A row that SFT reads, without the result of the submission: nobody reads that."""
    messages = as_dicts(conversation)
    while messages[-1]["role"] != "assistant":
        messages.pop()
    tools = {"tools": [BASH.schema()]} if environment.tool_calls == "template" else {}
    return {"id": id, "messages": messages, **tools}
