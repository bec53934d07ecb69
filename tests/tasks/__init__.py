"""Tests of the task sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from assay.types import Check, Task


def sources(task: Task) -> list[str]:
    """The Python of a task's checks."""
    return [check.source for check in task.checks if isinstance(check, Check)]


def written(folder: Path, *rows: dict[str, Any]) -> str:
    """The path of a new file of rows."""
    (folder / "my.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / "my.jsonl")
