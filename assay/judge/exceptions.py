"""Exceptions across the wall: as names of built-in classes and plain arguments, never as
objects.
"""

from __future__ import annotations

import builtins
import contextlib

from assay.judge.codec import BARE, BARE_OR_FLOAT, Json

SHOWN = 4000
NEVER_RAISED = frozenset(
    {
        "AssertionError",
        "NameError",
        "UnboundLocalError",
        "StopIteration",
        "StopAsyncIteration",
        "ExceptionGroup",
    }
)
"""Exceptions that would look like the check's own, or steer its loops, cross as RuntimeError."""


def raised(error: BaseException) -> list[Json]:
    """An exception as names of its built-in classes, nearest first, what to make it of, its type's
    name, its text.
    """
    bases = [base for base in type(error).__mro__ if getattr(builtins, base.__name__, None) is base]
    text = shown(error)
    made_of = arguments(error, bases[0] if bases else Exception, text)
    return ["raised", [base.__name__ for base in bases], made_of, f"{type(error).__name__}", text]


def arguments(error: BaseException, base: type[BaseException], text: str) -> list[Json]:
    """What a `base` of the same `text` is made of: the arguments of `error` if they are plain data,
    or the text.
    """
    with contextlib.suppress(
        Exception
    ):  # `args` may be the program's own code, or an int too long to be shown
        made_of = list(error.args)
        if all(type(part) in BARE for part in made_of) and str(base(*made_of)) == text:
            return made_of
    return [text]


def shown(error: BaseException) -> str:
    """The exception's text, which is the program's to write, cut to a page's length."""
    try:
        return str(error)[:SHOWN]
    except Exception:  # noqa: BLE001  its __str__ is the program's code
        return "(no text)"


def exception(names: Json, arguments: Json, text: str) -> Exception:
    """The nearest built-in exception among `names`; RuntimeError(text) where there is none that may
    cross.
    """
    if type(arguments) is not list or not all(type(part) in BARE_OR_FLOAT for part in arguments):
        arguments = [text]
    for name in names if type(names) is list else ():
        found = (
            getattr(builtins, name, None)
            if type(name) is str and name not in NEVER_RAISED
            else None
        )
        if (
            isinstance(found, type)
            and issubclass(found, Exception)
            and not issubclass(found, UnicodeError)
        ):
            with contextlib.suppress(
                TypeError, ValueError
            ):  # the arguments are whatever the candidate wrote
                return found(*arguments)
    return RuntimeError(text)
