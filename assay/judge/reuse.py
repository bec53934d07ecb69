"""Whether code can leave a trace in the process that runs it, or find one there; if not, the
process is used again.

Most tests, and most programs of a policy, import some `math`, compute, and return: a process
survives those unchanged, and saves the next job a fork. The question is answered from the compiled
code, by what that may do: only listed steps, only listed modules, built-ins and attributes. So
there are no classes, whose finalizers could act later, no generators that could be left suspended,
nothing that sets an attribute, and no way to a namespace, a frame or others' memory.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from itertools import starmap
from opcode import opmap
from types import CodeType
from typing import Any

CHECKER = "<checker>"
"""The name of a checker in tracebacks."""
STEPS = frozenset(
    number
    for name, number in opmap.items()
    if re.fullmatch(
        r"(LOAD|STORE)_(FAST\w*|DEREF|GLOBAL|NAME|SUBSCR|SLICE)|LOAD_(CONST|ATTR|METHOD|CLOSURE|ASSERTION_ERROR)"
        r"|DELETE_(FAST|SUBSCR|DEREF|NAME)|(BINARY|UNARY|BUILD|FORMAT|UNPACK|LIST|DICT|SET|MAP|JUMP|POP|RETURN)_(?!EG)\w+"
        r"|(COMPARE|CONTAINS|IS)_OP|FOR_ITER|GET_ITER|END_FOR|TO_BOOL|CONVERT_VALUE|IMPORT_(NAME|FROM|STAR)|YIELD_VALUE"
        r"|CALL(_KW|_FUNCTION_EX)?|PRECALL|KW_NAMES|PUSH_(NULL|EXC_INFO)|CHECK_EXC_MATCH|RERAISE|RAISE_VARARGS"
        r"|MAKE_(FUNCTION|CELL)|SET_FUNCTION_ATTRIBUTE|COPY|COPY_FREE_VARS|SWAP|NOP|CACHE|RESUME|EXTENDED_ARG|CALL_INTRINSIC_1",
        name,
    )
)
"""What code may do: compute, call, loop, raise, and name its own."""
MODULES = {
    "__future__": "annotations",
    "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
    "cmath": "",
    "collections": "Counter OrderedDict defaultdict deque",
    "functools": "cache cmp_to_key lru_cache partial reduce",
    "heapq": "heapify heappop heappush heappushpop heapreplace nlargest nsmallest",
    "itertools": "from_iterable",
    "json": "dumps loads",
    "math": "",
    "operator": "add and_ concat contains eq floordiv ge getitem gt invert itemgetter le lt mod "
                "mul ne neg not_ or_ "
    "pos sub truediv truth xor",
    "re": "A ASCII DOTALL I IGNORECASE M MULTILINE Match Pattern S X compile error escape findall "
          "finditer fullmatch "
    "match search split sub subn end group groupdict groups span start",
    "statistics": "fmean mean median mode multimode pstdev quantiles stdev variance",
    "string": "",
    "typing": "Any Callable Collection DefaultDict Deque Dict FrozenSet Generator Iterable "
              "Iterator List Mapping "
    "NoReturn Optional Sequence Set Tuple Union",
}  # fmt: skip
"""Modules that keep no state which these names of theirs, or of their values, change; all of some
are added below."""
DATA = (list, tuple, dict, set, frozenset, str, bytes, bytearray, int, float, complex, range,
    Counter, OrderedDict,
        defaultdict, deque)  # fmt: skip
ASCII = (
    "ascii_letters",
    "ascii_lowercase",
    "ascii_uppercase",
    "digits",
    "hexdigits",
    "punctuation",
    "whitespace",
)
WHOLE = ("math", "cmath", "itertools")
"""Modules of plain functions."""


def public(of: object) -> set[str]:
    """The names of an object that are no private ones."""
    return {name for name in dir(of) if not name.startswith("_")}


ATTRIBUTES = frozenset(
    {name for listed in MODULES.values() for name in listed.split()}
    | {name for module in WHOLE for name in public(import_module(module))}
    | {name for kind in DATA for name in public(kind)}
    | set(ASCII)
) - {
    "format",
    "format_map",
}  # which read attributes that a text names
ERRORS = {
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException)
}
HARMLESS = ERRORS.union(
    ("abs", "all", "any", "ascii", "bin", "bool", "bytearray", "bytes", "callable", "chr",
    "complex", "dict",
     "divmod", "enumerate", "filter", "float", "format", "frozenset", "hash", "hex", "int",
     "isinstance",
     "issubclass", "iter", "len", "list", "map", "max", "min", "next", "oct", "ord", "pow", "print",
     "range",
     "repr", "reversed", "round", "set", "slice", "sorted", "str", "sum", "tuple", "zip")
)  # fmt: skip
STARRED = {
    name
    for module in map(import_module, MODULES.keys() - {"__future__"})
    for name in getattr(module, "__all__", public(module))
} - ATTRIBUTES
UNLISTED = STARRED.union(dir(builtins)) - HARMLESS
"""Names that code may not use as its own either: they might be Python's, or what `import *` has
brought."""
GENERATOR, LATE = 0x20, 0x3A0
"""Flags of code that can be suspended: a generator's, and any (inspect.CO_GENERATOR, CO_COROUTINE
and their like)."""
KNOWN = (3, 11) <= sys.version_info < (3, 14)
"""Whether the code of this Python is read rightly below: elsewhere everything counts as a trace."""
SHIFTED = {opmap["LOAD_GLOBAL"], *([opmap["LOAD_ATTR"]] if sys.version_info >= (3, 12) else [])}
"""Steps whose lowest bit is no part of the name's number."""
OF_A_VALUE = {
    number for name, number in opmap.items() if name in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")
}
LOADED = {opmap["LOAD_NAME"], opmap["LOAD_GLOBAL"]}
BOUND = {opmap["STORE_NAME"], opmap["STORE_GLOBAL"], opmap["DELETE_NAME"]}
IMPORT, EXTENDED, INTRINSIC = (
    opmap["IMPORT_NAME"],
    opmap["EXTENDED_ARG"],
    opmap.get("CALL_INTRINSIC_1"),
)
INTRINSICS = {2: "import *", 3: "StopIteration", 5: "unary +", 6: "list to tuple"}
"""What Python 3.12 and 3.13 do by the step INTRINSIC, by its argument; the others define types, or
belong to async."""
NAMING = OF_A_VALUE | LOADED | BOUND | {IMPORT}


@lru_cache(maxsize=64)
def compiled(source: str, filename: str) -> CodeType:
    """The code of one piece; kept, since the rollouts of a group share it. Raises SyntaxError."""
    return compile(source, filename, "exec", dont_inherit=True)


def defined_check(source: str, filename: str) -> Callable[..., object]:
    """The `check` that a data set's checker defines, which sees no name but Python's. Raises what
    its code raises.
    """
    namespace: dict[str, Any] = {"__name__": "checker"}
    exec(compiled(source, filename), namespace)
    check: Callable[..., object] = namespace["check"]
    return check


def is_reusable_source(source: str, filename: str) -> bool:
    """Whether this process is as it was before the piece was run."""
    try:
        return is_reusable(compiled(source, filename))
    except (SyntaxError, ValueError):
        return True


def is_reusable(code: CodeType) -> bool:
    """Whether running `code`, and what it defines, changes nothing but its own namespace, and sees
    nothing else.
    """
    pieces = [code] if KNOWN else []
    for piece in pieces:  # it grows; nested code may be deeper than a recursion could go
        if not STEPS.issuperset(piece.co_code[::2]):
            return False
        if piece.co_flags & LATE not in (0, GENERATOR if piece.co_name == "<genexpr>" else 0):
            return False
        if not all(starmap(is_harmless, named(piece))):
            return False
        pieces += [constant for constant in piece.co_consts if isinstance(constant, CodeType)]
    return KNOWN


def named(code: CodeType) -> Iterator[tuple[int, str]]:
    """The steps of `code` itself that name something, and what."""
    names, high = code.co_names, 0
    for step, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument = high << 8 | low
        high = argument if step == EXTENDED else 0
        if step == INTRINSIC:
            yield step, INTRINSICS.get(argument, "")
        elif step in NAMING:
            yield step, names[argument >> 1 if step in SHIFTED else argument]


def is_harmless(step: int, name: str) -> bool:
    """Whether code may take this step to a thing of this name."""
    if step in OF_A_VALUE:
        return name in ATTRIBUTES
    if step == IMPORT:
        return name in MODULES
    if name == "__name__":
        return step in LOADED  # bound, it would decide what a relative import brings
    return bool(name) and name not in UNLISTED and not name.startswith("__")
