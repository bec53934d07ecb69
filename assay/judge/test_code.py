"""Pieces of the data set's code in the test worker: how one is run, and what it can name."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from functools import lru_cache
from traceback import walk_tb
from types import CodeType, FunctionType, ModuleType
from typing import Any

from assay.judge.protocol import PROGRAM, UNASKED, Outcome
from assay.judge.proxy import Connection, is_function
from assay.judge.requests import DETAIL

Piece = tuple[str, str]
"""A source of the data set's, and its name in tracebacks."""
Namespace = dict[str, Any]
SHOWN = 110
CODE = (ModuleType, FunctionType, type)


class LazyBuiltins(dict[str, Any]):
    """Python's built-in names, then the program's: asked for what the data set does not define."""

    def __init__(self, connection: Connection) -> None:
        # the import statement looks __import__ up without __missing__
        super().__init__(__import__=self._import)
        self.connection = connection
        self.answers: Namespace = {}
        """What checks have bound that asked the program; a use of it counts as asking."""
        self.modules: Namespace = dict.fromkeys(PROGRAM, ProgramModule(connection))
        """Modules that only the data set's code can import."""

    def __missing__(self, name: str) -> Any:
        if name in self.answers:
            self.connection.requests.count += 1
            return self.answers[name]
        if not hasattr(builtins, name):
            return self.connection.name(name)
        self[name] = value = getattr(builtins, name)
        return value

    def _import(self, name: str, *parts: Any, **keywords: Any) -> Any:
        """As `__import__`, with the program as a module too."""
        if name in self.modules:
            return self.modules[name]
        return builtins.__import__(name, *parts, **keywords)

    def take_answers(self, namespace: Namespace, names_before: set[str]) -> None:
        """Move what a check has bound beside `names_before`, and is no code, to where its use is
        noticed.
        """
        for name in namespace.keys() - names_before:
            if not isinstance(value := namespace[name], CODE) and not is_function(value):
                self.answers[name] = namespace.pop(name)


class ProgramModule:
    """The program, as a test imports it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._connection.name(name)
        except NameError:
            raise AttributeError(f"the program does not define {name!r}") from None


@lru_cache(maxsize=64)
def compiled(source: str, filename: str) -> CodeType:
    """The code of one piece, cached, since the rollouts of a group share it. Raises SyntaxError."""
    return compile(source, filename, "exec", dont_inherit=True)


def run_piece(piece: Piece, namespace: Namespace, connection: Connection) -> Outcome:
    """Run one piece of the data set's code. A failure that it swallows stays in the requests'
    `failure`.
    """
    return outcome_of(lambda: exec(compiled(*piece), namespace), piece, connection)


def outcome_of(action: Callable[[], object], piece: Piece, connection: Connection) -> Outcome:
    """How an action ends that runs code of a piece."""
    try:
        action()
    except BaseException as error:  # noqa: BLE001  the data set's code: the check does not hold, whatever it raises
        if error is connection.requests.raised:
            return Outcome("error", connection.requests.raised_text)
        if isinstance(error, AssertionError) and not error.args and connection.answers:
            error.args = (f"gives {show_value(*connection.answers)}",)
        return Outcome("wrong", describe(error, *piece))
    return Outcome("held")


def require_asked(run: Callable[[], Outcome], connection: Connection, text: str) -> Outcome:
    """The outcome of a check with this text; `unasked` if it asks the program nothing."""
    before = connection.requests.count
    outcome = run()
    if asks_nothing(outcome, before, connection):
        return Outcome("unasked", f"{UNASKED}: {outcome.detail or text.strip()}"[:DETAIL])
    return outcome


def asks_nothing(outcome: Outcome, before: int, connection: Connection) -> bool:
    """Whether it is the task's fault that code which ended so has made no request after the first
    `before`. The fault is the program's where that put data in the place of a class.
    """
    requests = connection.requests
    return requests.count == before and (outcome.how == "held" or not requests.gave_data)


def describe(error: BaseException, source: str, filename: str) -> str:
    """One line: the exception, and the line of the source that raised it."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}"[:DETAIL]
    trace = walk_tb(error.__traceback__)
    numbers = [number for frame, number in trace if frame.f_code.co_filename == filename]
    line = "".join(source.splitlines()[numbers[-1] - 1 : numbers[-1]] if numbers else ()).strip()
    text = ": ".join(part for part in (type(error).__name__, str(error)) if part)
    return f"{text} at `{line}`"[:DETAIL] if line else text[:DETAIL]


def show_value(value: object) -> str:
    """A value for messages, shortened."""
    try:
        return shorten(repr(value))
    except ValueError:
        return f"an int of more than {sys.get_int_max_str_digits()} digits"
    except Exception:  # noqa: BLE001  an answer may hold objects of the setup's classes
        return "a value that cannot be shown"


def shorten(text: str) -> str:
    """The text, shortened at its end."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
