"""Details of executions are for people. In all tests, code of the package that compares or searches
one fails at once: a verdict must rest on causes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.types import Execution

PACKAGE = str(Path(__file__).parent.parent / "assay")
READS = (
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__",
    "startswith", "endswith", "find", "rfind", "index", "rindex", "count",
)  # fmt: skip
"""Methods of a text by which code decides something."""


class Detail(str):
    """A text that only tests may read for what it says; the package may show it."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # processes that import no tests read it, too


def _unless_of_the_package(name: str) -> Callable[..., Any]:
    plain = getattr(str, name)

    def read(self: Detail, *arguments: Any) -> Any:
        if sys._getframe(1).f_code.co_filename.startswith(PACKAGE):
            raise AssertionError(f"{name} on the words of a detail: decide by the cause")
        return plain(self, *arguments)

    return read


for _name in READS:
    setattr(Detail, _name, _unless_of_the_package(_name))

_post_init = Execution.__post_init__


def _with_detail(execution: Execution) -> None:
    _post_init(execution)
    object.__setattr__(execution, "detail", Detail(execution.detail))


def watch_details() -> None:
    """Make each execution's detail a text of this kind."""
    Execution.__post_init__ = _with_detail  # type: ignore[method-assign,assignment]
