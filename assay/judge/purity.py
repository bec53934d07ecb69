"""Whether a piece of a data set's code can leave a trace in the worker that runs it; such a worker is not used again.

Most tests import some `math` and assert: a worker survives those unchanged, and saves the next job a process. The
question is answered from the compiled code, cautiously: an import that is not listed, an attribute set, a private name,
or a built-in that reaches into namespaces all count as a trace.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from opcode import opmap
from types import CodeType
from typing import Any

CHECKER = "<checker>"
"""The name of a checker in tracebacks."""
HARMLESS = frozenset(
    ("bisect", "cmath", "collections", "copy", "fractions", "functools", "heapq", "itertools", "json", "math",
     "operator", "re", "statistics", "string", "typing")
)  # fmt: skip
"""Modules that keep no state which their functions change."""
REACHING = frozenset(
    ("breakpoint", "compile", "delattr", "eval", "exec", "globals", "input", "open", "setattr", "vars")
)
SETS = frozenset(opmap[name] for name in ("STORE_ATTR", "DELETE_ATTR"))
IMPORT, EXTENDED = opmap["IMPORT_NAME"], opmap["EXTENDED_ARG"]


@lru_cache(maxsize=64)
def compiled(source: str, filename: str) -> CodeType:
    """The code of one piece; kept, since the rollouts of a group share it. Raises SyntaxError."""
    return compile(source, filename, "exec", dont_inherit=True)


def defined_check(source: str, filename: str) -> Callable[..., object]:
    """The `check` that a data set's checker defines, which sees no name but Python's. Raises what its code raises."""
    namespace: dict[str, Any] = {"__name__": "checker"}
    exec(compiled(source, filename), namespace)
    check: Callable[..., object] = namespace["check"]
    return check


def pure(source: str, filename: str) -> bool:
    """Whether this process is as it was before the piece was run."""
    try:
        return leaves_no_trace(compiled(source, filename))
    except (SyntaxError, ValueError):
        return True


def leaves_no_trace(code: CodeType) -> bool:
    """Whether running `code`, and what it defines, changes nothing but its own namespace."""
    if any(name in REACHING or (name.startswith("_") and name != "_") for name in code.co_names):
        return False
    steps = code.co_code[::2]
    if SETS.intersection(steps) or (IMPORT in steps and not HARMLESS.issuperset(imported(code))):
        return False
    return all(leaves_no_trace(inner) for inner in code.co_consts if isinstance(inner, CodeType))


def imported(code: CodeType) -> set[str]:
    """The top-level modules that `code` itself imports."""
    found, high = set(), 0
    for step, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument = high << 8 | low
        high = argument if step == EXTENDED else 0
        if step == IMPORT:
            found.add(code.co_names[argument].partition(".")[0])
    return found
