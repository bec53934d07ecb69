"""Decides whether a process can be reused after a program: the code can change nothing in it but
its own names, and can see nothing that another program left.

Most tests and most programs import some `math`, compute and return. They leave a process as it was,
which saves the next job a fork. The decision comes from the compiled code, by allow-lists of
opcodes, modules, built-ins and attributes. So there are no classes, whose finalizers could run
later, no generators that stay suspended, nothing that sets an attribute, and no way to a namespace,
a frame or another program's memory.
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
        r"(LOAD|STORE)_(FAST\w*|DEREF|GLOBAL|NAME|SUBSCR|SLICE)"
        r"|LOAD_(CONST|ATTR|METHOD|CLOSURE|ASSERTION_ERROR)|DELETE_(FAST|SUBSCR|DEREF|NAME)"
        r"|(BINARY|UNARY|BUILD|FORMAT|UNPACK|LIST|DICT|SET|MAP|JUMP|POP|RETURN)_(?!EG)\w+"
        r"|(COMPARE|CONTAINS|IS)_OP|FOR_ITER|GET_ITER|END_FOR|TO_BOOL|CONVERT_VALUE"
        r"|IMPORT_(NAME|FROM|STAR)|YIELD_VALUE|CALL(_KW|_FUNCTION_EX)?|PRECALL|KW_NAMES"
        r"|PUSH_(NULL|EXC_INFO)|CHECK_EXC_MATCH|RERAISE|RAISE_VARARGS|MAKE_(FUNCTION|CELL)"
        r"|SET_FUNCTION_ATTRIBUTE|COPY|COPY_FREE_VARS|SWAP|NOP|CACHE|RESUME|EXTENDED_ARG"
        r"|CALL_INTRINSIC_1",
        name,
    )
)
"""Opcodes that code may use: it may compute, call, loop, raise, and bind its own names."""
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
    "operator": "add and_ concat contains eq floordiv ge getitem gt invert itemgetter le lt mod mul"
    " ne neg not_ or_ pos sub truediv truth xor",
    "re": "A ASCII DOTALL I IGNORECASE M MULTILINE Match Pattern S X compile error escape findall"
    " finditer fullmatch match search split sub subn end group groupdict groups span start",
    "statistics": "fmean mean median mode multimode pstdev quantiles stdev variance",
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits punctuation"
    " whitespace",
    "typing": "Any Callable Collection DefaultDict Deque Dict FrozenSet Generator Iterable Iterator"
    " List Mapping NoReturn Optional Sequence Set Tuple Union",
}
"""Modules, each with the names (of its own or of its values) that change no state of it. All names
of WHOLE_MODULES are added below."""
WHOLE_MODULES = ("math", "cmath", "itertools")
"""Modules of plain functions."""
DATA_TYPES = (
    list, tuple, dict, set, frozenset, str, bytes, bytearray, int, float, complex, range, Counter,
    OrderedDict, defaultdict, deque,
)  # fmt: skip


def public(of: object) -> set[str]:
    """The public names of an object."""
    return {name for name in dir(of) if not name.startswith("_")}


ATTRIBUTES = frozenset(
    {name for names in MODULES.values() for name in names.split()}
    | {name for module in WHOLE_MODULES for name in public(import_module(module))}
    | {name for kind in DATA_TYPES for name in public(kind)}
) - {"format", "format_map"}  # these two read attributes that a text names
ERRORS = {
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException)
}
HARMLESS_NAMES = (
    "abs all any ascii bin bool bytearray bytes callable chr complex dict divmod enumerate filter"
    " float format frozenset hash hex int isinstance issubclass iter len list map max min next oct"
    " ord pow print range repr reversed round set slice sorted str sum tuple zip"
)
HARMLESS_BUILTINS = ERRORS.union(HARMLESS_NAMES.split())
STARRED = {
    name
    for module in map(import_module, MODULES.keys() - {"__future__"})
    for name in getattr(module, "__all__", public(module))
} - ATTRIBUTES
UNLISTED = STARRED.union(dir(builtins)) - HARMLESS_BUILTINS
"""Names that code may not bind either: they might be Python's, or come from `import *`."""
GENERATOR, SUSPENDABLE = 0x20, 0x3A0
"""Flags of code that can be suspended: a generator's, and any (inspect.CO_GENERATOR, CO_COROUTINE
and the like)."""
KNOWN_PYTHON = (3, 11) <= sys.version_info < (3, 14)
"""Whether this file knows the bytecode of this Python; no code of another version is reusable."""
SHIFTED = {opmap["LOAD_GLOBAL"], *([opmap["LOAD_ATTR"]] if sys.version_info >= (3, 12) else [])}
"""Opcodes whose lowest bit is no part of the name's index."""
OF_A_VALUE = {
    number for name, number in opmap.items() if name in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")
}
LOADED = {opmap["LOAD_NAME"], opmap["LOAD_GLOBAL"]}
BOUND = {opmap["STORE_NAME"], opmap["STORE_GLOBAL"], opmap["DELETE_NAME"]}
IMPORT, EXTENDED = opmap["IMPORT_NAME"], opmap["EXTENDED_ARG"]
INTRINSIC = opmap.get("CALL_INTRINSIC_1")
INTRINSICS = {2: "import *", 3: "StopIteration", 5: "unary +", 6: "list to tuple"}
"""What the opcode INTRINSIC of Python 3.12 and 3.13 does, by its argument; the others define types
or belong to async."""
NAMING = OF_A_VALUE | LOADED | BOUND | {IMPORT}


@lru_cache(maxsize=64)
def compiled(source: str, filename: str) -> CodeType:
    """The code of one piece, cached, since the rollouts of a group share it. Raises SyntaxError."""
    return compile(source, filename, "exec", dont_inherit=True)


def defined_check(source: str, filename: str) -> Callable[..., object]:
    """The `check` that a data set's checker defines, in its own namespace. Raises what its code
    raises.
    """
    namespace: dict[str, Any] = {"__name__": "checker"}
    exec(compiled(source, filename), namespace)
    check: Callable[..., object] = namespace["check"]
    return check


def is_reusable_source(source: str, filename: str) -> bool:
    """Whether the process can be reused after this piece; one that does not compile never ran."""
    try:
        return is_reusable(compiled(source, filename))
    except (SyntaxError, ValueError):
        return True


def is_reusable(code: CodeType) -> bool:
    """Whether `code`, and what it defines, can change and see nothing but its own namespace."""
    pieces = [code] if KNOWN_PYTHON else []
    for piece in pieces:  # the list grows; a recursion could go too deep
        if not STEPS.issuperset(piece.co_code[::2]):
            return False
        if piece.co_flags & SUSPENDABLE not in (
            0,
            GENERATOR if piece.co_name == "<genexpr>" else 0,
        ):
            return False
        if not all(starmap(is_harmless, named(piece))):
            return False
        pieces += [constant for constant in piece.co_consts if isinstance(constant, CodeType)]
    return KNOWN_PYTHON


def named(code: CodeType) -> Iterator[tuple[int, str]]:
    """The opcodes of `code` itself that use a name, and the name."""
    names, high = code.co_names, 0
    for step, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument = high << 8 | low
        high = argument if step == EXTENDED else 0
        if step == INTRINSIC:
            yield step, INTRINSICS.get(argument, "")
        elif step in NAMING:
            yield step, names[argument >> 1 if step in SHIFTED else argument]


def is_harmless(step: int, name: str) -> bool:
    """Whether code may use this opcode with this name."""
    if step in OF_A_VALUE:
        return name in ATTRIBUTES
    if step == IMPORT:
        return name in MODULES
    if name == "__name__":
        return step in LOADED  # bound, it would decide what a relative import loads
    return bool(name) and name not in UNLISTED and not name.startswith("__")
