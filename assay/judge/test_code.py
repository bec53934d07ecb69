"""Pieces of the data set's code in the test worker: how one is run, and what it can name."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable
from traceback import walk_tb
from types import CodeType, FunctionType, ModuleType
from typing import Any

from assay.bounded import BoundedDict, bounded_cache
from assay.judge.answer_code import CALLER
from assay.judge.answer_names import AnswerNames, with_names_watched
from assay.judge.codec_types import BUILTINS, PLAIN_DIGITS
from assay.judge.objects import SAME, Identity, RemoteClass, is_function, with_identity_asked
from assay.judge.proxy import Connection
from assay.judge.requests import DETAIL
from assay.judge.task_code import parsed
from assay.judge.worker_messages import PROGRAM, UNASKED, Outcome
from assay.lines import source_lines

Piece = tuple[str, str]
"""A source of the data set's, and its name in tracebacks."""
Namespace = dict[str, Any]
SHOWN, CODE_BYTES = 110, 16
"""Characters of a value that are shown; bytes of code that come of a character of source."""
CLASSES_SENT = {id(kind) for kind in BUILTINS.values() if isinstance(kind, type)}
"""The ids of Python's classes that a program may answer."""
IMPORTS = ast.Import, ast.ImportFrom
DEFINITIONS = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef


class LazyBuiltins(dict[str, Any]):
    """Python's built-in names, then the program's: asked for what the data set does not define."""

    def __init__(self, connection: Connection, names: AnswerNames) -> None:
        # the import statement looks __import__ up without __missing__
        identity = Identity(connection)
        watched = {SAME: identity.same, "id": identity.id, "__import__": self._import}
        super().__init__(names.builtins | watched)
        self.connection, self._answer_names = connection, names
        self.answers: Namespace = {}
        """What checks have bound that asked the program; a use of it counts as asking."""
        self.modules: Namespace = dict.fromkeys(PROGRAM, ProgramModule(connection))
        """Modules that only the data set's code can import."""

    def __missing__(self, name: str) -> Any:
        if name in self.answers:
            self.connection.requests.count += 1
            return self.answers[name]
        if hasattr(builtins, name):
            self[name] = getattr(builtins, name)
        elif not self._takes(name, self.connection.job["imports"].get(name, "")):
            return self.connection.name(name)
        return self[name]

    def _takes(self, name: str, statement: str) -> bool:
        """Import what the reference imports by this name, if it can be imported here."""
        if not statement:
            return False
        scope: Namespace = {}
        try:
            exec(statement, scope)
        except ImportError:
            return False
        self[name] = scope[name]
        self._answer_names.wrap_modules()
        return True

    def _import(self, name: str, *parts: Any, **keywords: Any) -> Any:
        """As `__import__`, with the program as a module too."""
        if name in self.modules:
            return self.modules[name]
        names = CALLER(1).f_code.co_names
        if "__import__" in names and name not in names:  # what is written in C imports by it too
            self._answer_names.look(name)
        module = builtins.__import__(name, *parts, **keywords)
        self._answer_names.wrap_modules()
        return module

    def take_answers(self, namespace: Namespace, names_before: set[str], source: str) -> None:
        """Move what a check of this source has bound beside `names_before`, and is no code of its
        own, to where its use is noticed.
        """
        for name in namespace.keys() - names_before:
            if not is_own_code(namespace[name], name, source):
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


def is_own_code(value: object, name: str, source: str) -> bool:
    """Whether a name of a check's is bound to code by an import or a definition; a program may
    answer a class or a function too.
    """
    if type(value) in (ModuleType, FunctionType):
        return True
    if isinstance(value, type) and type(value) is not RemoteClass and id(value) not in CLASSES_SENT:
        return True
    return (isinstance(value, type) or is_function(value)) and name in defined_names(source)


@bounded_cache(64, 32)
def defined_names(source: str) -> frozenset[str]:
    """The names that code binds by imports and definitions."""
    nodes = [*ast.walk(parsed(source))]
    imports = [part for node in nodes if isinstance(node, IMPORTS) for part in node.names]
    names = {(part.asname or part.name).partition(".")[0] for part in imports}
    return frozenset(names | {node.name for node in nodes if isinstance(node, DEFINITIONS)})


def weight_of(part: Piece | CodeType) -> int:
    """About the most bytes that a piece takes with its code, which Python does not tell."""
    return 0 if isinstance(part, CodeType) else CODE_BYTES * len(part[0])


COMPILED: BoundedDict[Piece, CodeType] = BoundedDict(64, 32, weight_of)


def compiled(source: str, filename: str) -> CodeType:
    """The code of one piece, cached, since the rollouts of a group share it. Raises SyntaxError."""
    code = COMPILED.get((source, filename))
    if code is None:
        watched = with_identity_asked(with_names_watched(source))
        code = compile(watched, filename, "exec", dont_inherit=True)
        COMPILED[source, filename] = code
    return code


def run_piece(piece: Piece, namespace: Namespace, connection: Connection) -> Outcome:
    """Run one piece of the data set's code. A failure that it swallows stays in the requests'
    `failure`.
    """
    source, filename = piece
    connection.sources[filename] = source
    return outcome_of(lambda: exec(compiled(*piece), namespace), piece, connection)


def outcome_of(action: Callable[[], object], piece: Piece, connection: Connection) -> Outcome:
    """How an action ends that runs code of a piece."""
    try:
        action()
    except BaseException as error:  # noqa: BLE001  the data set's code: the check does not hold, whatever it raises
        return outcome_of_error(error, piece, connection)
    return Outcome("held")


def outcome_of_error(error: BaseException, piece: Piece, connection: Connection) -> Outcome:
    """How a check ends that raises this."""
    connection.raised_by_test = error
    if error is connection.requests.raised:
        return Outcome("error", connection.requests.raised_text)
    if isinstance(error, AssertionError) and not error.args and connection.answers:
        error.args = (f"gives {show_value(*connection.answers)}",)
    return Outcome("wrong", describe(error, *piece))


def require_asked(run: Callable[[], Outcome], connection: Connection, text: str) -> Outcome:
    """The outcome of a check with this text; `unasked` if it asks the program nothing."""
    before = connection.requests.count
    outcome = run()
    if asks_nothing(outcome, before, connection):
        return Outcome("unasked", f"{UNASKED}: {outcome.detail or text.strip()}"[:DETAIL])
    return outcome


def asks_nothing(outcome: Outcome, before: int, connection: Connection) -> bool:
    """Whether it is the task's fault that code which ended so has made no request after the first
    `before`. The fault is the program's where that put data, or a class of Python's, in the place
    of a class.
    """
    requests = connection.requests
    gave = requests.gave_class or (requests.gave_data and outcome.how != "held")
    return requests.count == before and not gave


def describe(error: BaseException, source: str, filename: str) -> str:
    """One line: the exception, and the line of the source that raised it."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}"[:DETAIL]
    trace = walk_tb(error.__traceback__)
    numbers = [number for frame, number in trace if frame.f_code.co_filename == filename]
    line = "".join(source_lines(source)[numbers[-1] - 1 : numbers[-1]] if numbers else ()).strip()
    text = ": ".join(part for part in (type(error).__name__, str(error)) if part)
    return f"{text} at `{line}`"[:DETAIL] if line else text[:DETAIL]


def show_value(value: object) -> str:
    """A value for messages, shortened."""
    limit = sys.get_int_max_str_digits()
    try:
        sys.set_int_max_str_digits(PLAIN_DIGITS)  # a program may return thousands of long ints
        return shorten(repr(value))
    except ValueError:
        return f"an int of more than {PLAIN_DIGITS} digits"
    except Exception:  # noqa: BLE001  an answer may hold objects of the setup's classes
        return "a value that cannot be shown"
    finally:
        sys.set_int_max_str_digits(limit)


def shorten(text: str) -> str:
    """The text, shortened at its end."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
