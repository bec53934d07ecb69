"""Guesses the types of expressions from the function that they stand in, so that a bug keeps them.

A guess is the name of a built-in type; "" where nothing tells it. `bool` is no number here.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Types = Mapping[str, str]
"""Types by the text of a name, or of an attribute of `self`."""
NUMBER, TEXT = "int", "str"
LITERALS: dict[type[ast.AST], str] = {
    ast.JoinedStr: TEXT, ast.List: "list", ast.ListComp: "list", ast.Dict: "dict",
    ast.DictComp: "dict", ast.Set: "set", ast.SetComp: "set", ast.Tuple: "tuple",
    ast.Compare: "bool",
}  # fmt: skip
RESULTS = {
    name: kind
    for kind, names in {
        NUMBER: "len int float abs round ord sum count index find rfind rindex bit_length time",
        TEXT: "str repr chr join strip lstrip rstrip lower upper title replace format hex decode",
        "bool": "isinstance any all bool startswith endswith isdigit isalpha hasattr callable",
        "list": "list sorted split rsplit splitlines", "dict": "dict", "set": "set frozenset",
        "tuple": "tuple partition rpartition", "bytes": "bytes encode",
    }.items() for name in names.split()
}  # fmt: skip
"""Types of what functions and methods of these names return."""
METHODS = {
    name: kind
    for kind, names in {
        TEXT: "strip lstrip rstrip lower upper split startswith endswith splitlines encode isdigit"
        " isalpha format replace title partition rpartition",
        "list": "append extend insert sort reverse", "dict": "items keys values setdefault",
        "set": "add discard difference union intersection", "bytes": "decode",
    }.items() for name in names.split()
}  # fmt: skip
"""Types of the objects whose methods have these names."""
ANNOTATIONS = {"int": NUMBER, "float": NUMBER, "str": TEXT} | {
    name: name for name in ("bool", "bytes", "list", "dict", "set", "tuple")
}
NUMERIC = ast.Sub | ast.Mult | ast.Div | ast.FloorDiv | ast.Pow | ast.Mod
ORDER = ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq


def type_of(node: ast.AST | None, types: Types) -> str:
    """The type of an expression, if the code tells it."""
    if isinstance(node, ast.Constant):
        kind = type(node.value).__name__
        return NUMBER if kind == "float" else kind if kind in ANNOTATIONS else ""
    if isinstance(node, ast.Name | ast.Attribute):
        return types.get(ast.unparse(node), "")
    if isinstance(node, ast.arg):
        return types.get(node.arg, "")
    if isinstance(node, ast.Call):
        function = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if function in ("min", "max") and node.args:
            return _common(node.args, types)
        return RESULTS.get(function, "")
    if isinstance(node, ast.BinOp):
        kinds = {type_of(node.left, types), type_of(node.right, types)}
        if isinstance(node.op, ast.Add):
            return "".join(kinds) if len(kinds := kinds - {""}) == 1 else ""
        is_number = kinds == {NUMBER} and isinstance(node.op, NUMERIC)
        return NUMBER if is_number else TEXT if TEXT in kinds else ""
    if isinstance(node, ast.UnaryOp):
        return "bool" if isinstance(node.op, ast.Not) else type_of(node.operand, types)
    if isinstance(node, ast.BoolOp):
        return _common(node.values, types)
    if isinstance(node, ast.IfExp):
        return _common([node.body, node.orelse], types)
    return LITERALS.get(type(node), "") if node else ""


def _common(nodes: Iterable[ast.AST], types: Types) -> str:
    kinds = {type_of(node, types) for node in nodes}
    return kinds.pop() if len(kinds) == 1 else ""


def types_in(scope: ast.AST) -> Types:
    """Types of the names in a function, or of the attributes of `self` in a class."""
    types: dict[str, str] = {}
    for _ in range(2):  # one assignment may rest on another
        for node in ast.walk(scope):
            for target, kind in _evidence(node, types):
                if kind and isinstance(target, ast.Name | ast.Attribute | ast.arg):
                    name = target.arg if isinstance(target, ast.arg) else ast.unparse(target)
                    types.setdefault(name, kind)
    return types


def _evidence(node: ast.AST, types: Types) -> Iterator[tuple[ast.AST, str]]:
    """Names in a node, each with the type that the node gives it."""
    if isinstance(node, ast.arguments):
        arguments = [*node.posonlyargs, *node.args]
        with_default = arguments[len(arguments) - len(node.defaults) :]
        for argument, default in zip(with_default, node.defaults, strict=True):
            yield argument, type_of(default, types)
        for argument, value in zip(node.kwonlyargs, node.kw_defaults, strict=True):
            yield argument, type_of(value, types)
    elif isinstance(node, ast.arg):
        yield node, ANNOTATIONS.get(ast.unparse(node.annotation) if node.annotation else "", "")
    elif isinstance(node, ast.AnnAssign):
        yield node.target, ANNOTATIONS.get(ast.unparse(node.annotation), "")
    elif isinstance(node, ast.Assign):
        yield from ((target, type_of(node.value, types)) for target in node.targets)
    elif isinstance(node, ast.For):
        yield from _of_loop(node)
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        yield node.value, METHODS.get(node.attr, "")
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        for side, other in ((node.left, node.right), (node.right, node.left)):
            yield side, NUMBER if type_of(other, types) == NUMBER else ""
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ORDER):
        yield node.left, type_of(node.comparators[0], types)
        yield node.comparators[0], type_of(node.left, types)
    elif isinstance(node, ast.Slice):
        yield from ((part, NUMBER) for part in (node.lower, node.upper) if part)


def _of_loop(node: ast.For) -> Iterator[tuple[ast.AST, str]]:
    call = node.iter.func if isinstance(node.iter, ast.Call) else None
    name = call.id if isinstance(call, ast.Name) else ""
    if name == "range":
        yield node.target, NUMBER
    elif name == "enumerate" and isinstance(node.target, ast.Tuple):
        yield node.target.elts[0], NUMBER


def uses_in(scope: ast.AST) -> dict[str, set[str]]:
    """What is done with each name in a function, or with each attribute of `self` in a class:
    attributes that are read, `[]`, `()` and `for`.
    """
    uses: dict[str, set[str]] = {}
    for node in ast.walk(scope):
        for target, use in (
            (getattr(node, "value", None), getattr(node, "attr", "")),
            (getattr(node, "value", None), "[]" if isinstance(node, ast.Subscript) else ""),
            (getattr(node, "func", None), "()"),
            (getattr(node, "iter", None), "for"),
        ):
            if use and isinstance(target, ast.Name | ast.Attribute):
                uses.setdefault(ast.unparse(target), set()).add(use)
    return uses
