"""What operators put in the place of what: tokens as patterns, and names of functions."""

from __future__ import annotations

import ast

TOKENS: dict[type[ast.AST], tuple[bytes, bytes]] = {
    ast.Lt: (rb"<", b"<="), ast.LtE: (rb"<=", b"<"), ast.Gt: (rb">", b">="),
    ast.GtE: (rb">=", b">"), ast.Eq: (rb"==", b"!="), ast.NotEq: (rb"!=", b"=="),
    ast.Is: (rb"is", b"is not"), ast.IsNot: (rb"is\s+not", b"is"),
    ast.In: (rb"in", b"not in"), ast.NotIn: (rb"not\s+in", b"in"),
    ast.Add: (rb"\+", b"-"), ast.Sub: (rb"-", b"+"), ast.Mult: (rb"\*", b"//"),
    ast.Div: (rb"/", b"*"), ast.FloorDiv: (rb"//", b"/"), ast.Mod: (rb"%", b"//"),
    ast.Pow: (rb"\*\*", b"*"), ast.LShift: (rb"<<", b">>"), ast.RShift: (rb">>", b"<<"),
    ast.BitOr: (rb"\|", b"&"), ast.BitAnd: (rb"&", b"|"), ast.BitXor: (rb"\^", b"|"),
    ast.And: (rb"and", b"or"), ast.Or: (rb"or", b"and"),
}  # fmt: skip
PAIRS = (
    "min max", "any all", "startswith endswith", "lstrip rstrip", "lower upper", "find rfind",
    "index rindex", "split rsplit", "partition rpartition", "append extend", "keys values",
    "floor ceil", "union intersection", "popleft pop", "appendleft append", "match search",
    "isdigit isalpha", "removeprefix removesuffix", "ljust rjust", "bisect_left bisect_right",
)  # fmt: skip
CALLS = {b: a for a, b in map(str.split, PAIRS)} | dict(map(str.split, PAIRS))
