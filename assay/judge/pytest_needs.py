"""Whether tests need pytest itself, as their text shows. The others run without it, which is
quicker: what they use of pytest is in kinds/pytest_module.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from assay.syntax_trees import walk

Function = ast.FunctionDef | ast.AsyncFunctionDef
QUICK = frozenset(("approx", "fail", "main", "mark", "param", "raises"))
"""What pytest_module.py has of pytest's."""
MARKS = frozenset(("filterwarnings", "skip", "skipif", "usefixtures", "xfail"))
"""Marks that decide how a test runs."""
HOOKS = frozenset(
    ("setup_module", "teardown_module", "setup_function", "teardown_function", "setup_class",
     "teardown_class", "setUpModule", "tearDownModule", "pytest_generate_tests")
)  # fmt: skip
SKIPS = frozenset(("skip", "skipIf", "skipUnless", "skipTest", "SkipTest", "expectedFailure"))
"""unittest's own, by which a test is not run or may fail."""
FIXTURES = frozenset(
    ("capfd", "capfdbinary", "capsys", "capsysbinary", "caplog", "doctest_namespace",
     "monkeypatch", "pytestconfig", "record_property", "recwarn", "request", "subtests", "tmp_path",
     "tmp_path_factory")
)  # fmt: skip
"""Those that pytest brings, where a worker runs it."""
CAUGHT = ("value", "type")
"""What pytest_module.py says of an exception that `raises` has caught."""


def needs_pytest(nodes: Sequence[ast.AST]) -> bool:
    """Whether tests use more of pytest than pytest_module.py has, but for fixtures as arguments."""
    modules, marks = {"pytest"}, {"mark"}
    for node in nodes:
        match node:
            case ast.Import(names):
                modules |= {it.asname for it in names if it.name == "pytest" and it.asname}
                if any(it.name == "pytest_asyncio" for it in names):
                    return True
            case ast.ImportFrom(module="pytest", names=names):
                if not {it.name for it in names} <= QUICK:
                    return True
                marks |= {it.asname or it.name for it in names if it.name == "mark"}
            case ast.ImportFrom(module="unittest", names=names):
                if any(it.name in SKIPS for it in names):
                    return True
            case ast.ImportFrom(module="pytest_asyncio"):
                return True
    return any(_needs(node, modules, marks) for node in nodes) or _reads_caught(nodes)


def _needs(node: ast.AST, modules: set[str], marks: set[str]) -> bool:
    match node:
        case ast.Attribute(ast.Name(name), attribute) if name in modules:
            return attribute not in QUICK
        case ast.Attribute(ast.Name("unittest"), attribute):
            return attribute in SKIPS
        case ast.Attribute(ast.Name("self"), "skipTest"):
            return True
        case ast.Attribute(ast.Attribute(ast.Name(name), "mark"), mark) if name in modules:
            return mark in MARKS
        case ast.Attribute(ast.Name(name), mark) if name in marks:
            return mark in MARKS
        case ast.Call(ast.Attribute(attr="parametrize"), keywords=keywords):
            return any(it.arg not in ("ids", "argnames", "argvalues") for it in keywords)
        case ast.Call(ast.Attribute(attr="param") | ast.Name("param"), keywords=keywords):
            return any(it.arg != "id" for it in keywords)
        case ast.Call(ast.Attribute(ast.Name(name), "raises"), keywords=keywords):
            return name in modules and any(it.arg == "check" for it in keywords)
        case ast.Name("pytestmark", ast.Store()):
            return True
        case ast.FunctionDef(name=name):
            return name in HOOKS
    return False


def _reads_caught(nodes: Sequence[ast.AST]) -> bool:
    """Whether tests ask more of what `raises` has caught than its value and type."""
    caught = {
        item.optional_vars.id
        for node in nodes
        if isinstance(node, ast.With)
        for item in node.items
        if isinstance(item.optional_vars, ast.Name) and _is_raises(item.context_expr)
    }
    usual = {
        id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr in CAUGHT
    }
    return any(
        isinstance(node, ast.Name) and node.id in caught and id(node) not in usual
        and isinstance(node.ctx, ast.Load)
        for node in nodes
    )  # fmt: skip


def _is_raises(call: ast.expr) -> bool:
    function = call.func if isinstance(call, ast.Call) else None
    return "raises" in (getattr(function, "attr", ""), getattr(function, "id", ""))


def fixtures(nodes: Sequence[ast.AST]) -> set[str]:
    """The names of the fixtures that tests have: pytest's, and their own."""
    names = set(FIXTURES)
    for node in nodes:
        if isinstance(node, Function) and (mark := fixture_mark(node)):
            names.add(node.name)
            keywords = mark.keywords if isinstance(mark, ast.Call) else []
            names |= {
                str(it.value.value)
                for it in keywords
                if it.arg == "name" and isinstance(it.value, ast.Constant)
            }
    return names


def fixture_mark(function: Function) -> ast.expr | None:
    """The decorator that makes a function a fixture."""
    for mark in function.decorator_list:
        if re.search(r"\bfixture$", ast.unparse(mark.func if isinstance(mark, ast.Call) else mark)):
            return mark
    return None


def parameters(nodes: Sequence[ast.AST]) -> Iterator[tuple[set[str], ast.expr]]:
    """Names and values of each `parametrize` among nodes, and not below them."""
    for node in nodes:
        match node:
            case ast.Call(ast.Attribute(attr="parametrize"), arguments, keywords):
                by_keyword = {it.arg: it.value for it in keywords}
                names = arguments[0] if arguments else by_keyword.get("argnames")
                values = arguments[1] if len(arguments) > 1 else by_keyword.get("argvalues")
                if names is not None and values is not None:
                    yield set(re.findall(r"\w+", ast.unparse(names))), values


def parameters_of_all(nodes: Sequence[ast.AST]) -> set[str]:
    """The names of those that stand in no decorator: they may be `pytestmark`, have a name, or be
    called by a hook.
    """
    inside = list[ast.AST]()
    if any(isinstance(node, ast.Attribute) and node.attr == "parametrize" for node in nodes):
        values = [node.value for node in nodes if isinstance(node, ast.Assign | ast.Expr)]
        inside += [part for value in values for part in walk(value)]
    return {name for names, _ in parameters(inside) for name in names}
