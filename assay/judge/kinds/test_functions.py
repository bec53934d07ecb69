"""Test functions and classes of pytest and unittest, and doctests: each test is a check."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from math import prod
from types import FunctionType
from typing import TYPE_CHECKING, Any

from assay.checks import TestFunctions
from assay.judge.codec import Json
from assay.judge.kinds.asserts import constant
from assay.judge.kinds.calls import Bench
from assay.judge.kinds.kind import Kind, Part
from assay.judge.kinds.pytest_module import CASES, Skipped
from assay.judge.protocol import UNASKED, Outcome
from assay.judge.requests import DETAIL
from assay.judge.task_code import parsed
from assay.judge.test_code import (
    Namespace,
    Piece,
    asks_nothing,
    outcome_of,
    require_asked,
    run_piece,
)

if TYPE_CHECKING:
    from assay.types import Task

Function = ast.FunctionDef | ast.AsyncFunctionDef
HOOKS = {"setup_module", "teardown_module", "setup_function", "teardown_function", "setup_class",
         "teardown_class", "setUpModule", "tearDownModule"}  # fmt: skip
PROMPT = re.compile(r"^[ \t]*>>> ", re.MULTILINE)
NAME = re.compile(r"(?:(\w+)::)?(\w+)(?:\[(\d+)\])?")
"""Of a test: class, function, number of the case."""


@dataclass(frozen=True, slots=True)
class TextTest:
    """A test as the text of its module shows it."""

    name: str
    """`test_a`, or `TestB::test_a`."""
    function: Function
    holder: ast.ClassDef | None = None
    unittest: bool = False
    """Whether its class is a `unittest.TestCase`."""

    def cases(self) -> list[str]:
        """Its name for each of its cases; once where the text does not show how many they are.

        Raises ValueError for a fixture.
        """
        if isinstance(self.function, ast.AsyncFunctionDef) and not self.unittest:
            raise ValueError(f"{self.name} is a coroutine; run it in a function of the tests")
        marks = [
            *self.function.decorator_list,
            *(self.holder.decorator_list if self.holder else ()),
        ]
        parameters, counts = set[str](), list[int]()
        for mark in marks:
            match mark:
                case ast.Call(ast.Attribute(attr="parametrize"), [names, values, *_]):
                    parameters |= set(re.findall(r"\w+", ast.unparse(names)))
                    counts.append(_length(values))
        for name in [] if self.unittest else _required(self.function, self.holder is not None):
            if name not in parameters:
                raise ValueError(f"{self.name} needs the fixture {name!r}, which is not there")
        if not counts or 0 in counts:
            return [self.name]
        return [f"{self.name}[{n}]" for n in range(prod(counts))]


def collect(source: str) -> list[str]:
    """The names of a module's tests: `test_a`, `TestB::test_c`, `test_d[0]` for each case that its
    text shows, `doctest[0]` where there is nothing else.

    Raises ValueError for code that is no Python, has no test, or needs what is not there.
    """
    try:
        body = list(_statements(ast.parse(source).body))
    except (SyntaxError, RecursionError, MemoryError) as error:
        if not PROMPT.search(source):
            raise ValueError(f"no valid Python ({error})") from None
        body = []
    for node in body:
        if isinstance(node, Function) and node.name in HOOKS:
            raise ValueError(f"{node.name!r} would not be run; make it a part of the tests")
    tests = {test.name: test for test in _tests(body)}  # the last of a name is the one that runs
    names = [name for test in tests.values() for name in test.cases()]
    names = names or [f"doctest[{n}]" for n, _ in enumerate(doctests(source))]
    if not names:
        raise ValueError("no test; add one")
    return names


def is_doctest(source: str) -> bool:
    """Whether a text is no Python, but has examples of it."""
    return not parsed(source).body and PROMPT.search(source) is not None


def is_text(node: ast.stmt) -> bool:
    """Whether a statement is only a text, as docstrings are."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def never_run(source: str) -> bool:
    """Whether a piece of code has tests that it does not run itself."""
    if is_doctest(source):
        return True
    body = list(_statements(parsed(source).body))
    definitions = {node.name: node for node in body if isinstance(node, Function | ast.ClassDef)}
    loose = [node for node in body if not (isinstance(node, DEFINITIONS) or is_text(node))]
    reached, new = set[str](), _names(loose)
    while new:
        reached |= new
        new = _names([definitions[name] for name in new if name in definitions]) - reached
    tests = list(_tests(body))
    if not tests:
        return not loose and bool(doctests(source))
    heads = [test.holder or test.function for test in tests if not test.unittest]
    return len(heads) < len(tests) or any(head.name not in reached for head in heads)


def doctests(source: str) -> list[str]:
    """The texts with `>>>` of a module: its docstrings, or the whole where it is no Python."""
    tree, owners = parsed(source), (*Function.__args__, ast.ClassDef, ast.Module)
    texts = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, owners)]
    texts = texts if tree.body else [source]
    return [text for text in texts if PROMPT.search(text)]


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when the module does, those in blocks too."""
    for node in body:
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            continue
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, part, []))


def _tests(body: Sequence[ast.stmt]) -> Iterator[TextTest]:
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    used = _names(body)
    for node in body:
        if isinstance(node, Function) and node.name.startswith("test"):
            # a function with parameters that others use is their helper
            if not (_required(node, False) and node.name in used and not node.decorator_list):
                yield TextTest(node.name, node)
        elif isinstance(node, ast.ClassDef):
            unittest = _is_case(node, classes)
            for test in _methods(node, classes) if unittest or node.name[:4] == "Test" else ():
                yield TextTest(f"{node.name}::{test.name}", test, node, unittest)


def _bases(holder: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).rpartition(".")[2] for base in holder.bases]


def _is_case(holder: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> bool:
    return any(
        base.endswith("TestCase") or (base in classes and _is_case(classes[base], classes))
        for base in _bases(holder)
    )


def _methods(holder: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[Function]:
    """The methods of a class that are tests, inherited ones too."""
    inherited = [classes[base] for base in reversed(_bases(holder)) if base in classes]
    methods = {test.name: test for base in inherited for test in _methods(base, classes)}
    defined = [node for node in holder.body if isinstance(node, Function)]
    return list(
        (methods | {node.name: node for node in defined if node.name[:4] == "test"}).values()
    )


def _required(function: Function, is_method: bool) -> list[str]:
    """Parameters without defaults."""
    these = function.args
    positional = [argument.arg for argument in (*these.posonlyargs, *these.args)]
    keyword_only = [
        argument.arg
        for argument, default in zip(these.kwonlyargs, these.kw_defaults, strict=True)
        if not default
    ]
    return positional[int(is_method) : len(positional) - len(these.defaults)] + keyword_only


def _length(values: ast.expr) -> int:
    """How many items a literal has; 0 where the text does not show it."""
    match values:
        case ast.List(items) | ast.Tuple(items):
            return 0 if any(isinstance(item, ast.Starred) for item in items) else len(items)
    return 0


def _names(nodes: Sequence[ast.AST]) -> set[str]:
    """All names that they use."""
    inside = (inner for node in nodes for inner in ast.walk(node))
    return {node.id for node in inside if isinstance(node, ast.Name)}


def run(wire: list[Any], number: int, bench: Bench) -> list[Part]:
    """A part for each test of [source, names]."""
    source, names = wire
    runner = TestRunner((source, f"<tests {number}>"), bench)
    return [partial(runner.run, name) for name in names]


class TestRunner:
    """Runs the tests of a module in the worker, and its body before the first."""

    def __init__(self, piece: Piece, bench: Bench) -> None:
        self._piece, self._bench = piece, bench
        self._namespace = bench.namespace

    def run(self, name: str) -> Outcome:
        """Run one test by its name."""
        ended, connection = self._body, self._bench.connection
        if ended.how == "held":
            act = partial(outcome_of, partial(self._run_test, name), self._piece, connection)
            ended = require_asked(act, connection, name)
        if ended.how == "held" or ended.detail.startswith(UNASKED):
            return ended
        return ended._replace(detail=f"{name}: {ended.detail}"[:DETAIL])

    @cached_property
    def _body(self) -> Outcome:
        """How the module's body has ended."""
        if is_doctest(self._piece[0]):
            return Outcome("held")
        names_before, requests = set(self._namespace), self._bench.connection.requests
        asked_before, named_before = requests.count, requests.names
        ended = run_piece(self._piece, self._namespace, self._bench.connection)
        test_names = {
            NAME.sub(r"\1::\2", name).removeprefix("::") for name in collect(self._piece[0])
        }
        others = ", ".join(sorted(set(_made(self._namespace, names_before)) - test_names))
        if ended.how == "held" and others:
            return Outcome("unasked", f"{UNASKED}: {others}: made while the module runs"[:DETAIL])
        if ended.how != "held" and asks_nothing(ended, asked_before, self._bench.connection):
            return Outcome("unasked", f"{UNASKED}: {ended.detail}"[:DETAIL])
        if requests.count - asked_before > requests.names - named_before:
            self._bench.builtin.take_answers(self._namespace, names_before)
        return ended

    def _run_test(self, name: str) -> None:
        """Raises what the test raises."""
        holder, function, case = NAME.fullmatch(name).groups()  # type: ignore[union-attr]
        if function == "doctest":
            return run_doctest(doctests(self._piece[0])[int(case)], self._namespace)
        kind: Any = self._namespace[holder] if holder else None
        if hasattr(kind, "assertEqual"):
            return run_unittest(kind(function))
        owner = kind() if kind else None
        test = getattr(owner, function) if owner else self._namespace[function]
        cases = [
            case | other
            for case, other in product(getattr(kind, CASES, [{}]), getattr(test, CASES, [{}]))
        ]
        for arguments in cases if case is None else [cases[int(case)]]:
            _hook(owner, "setup_method", test)
            try:
                test(**arguments)
            finally:
                _hook(owner, "teardown_method", test)
        return None


def _hook(owner: object, name: str, test: object) -> None:
    """Call a hook of pytest's, which may take the test."""
    if hook := getattr(owner, name, None):
        hook(*[test][: hook.__code__.co_argcount - 1])


def _made(namespace: Namespace, names_before: set[str]) -> Iterator[str]:
    """The tests that a module has made."""
    for name in namespace.keys() - names_before:
        value = namespace[name]
        if isinstance(value, FunctionType) and name.startswith("test"):
            yield name
        elif isinstance(value, type) and (hasattr(value, "assertEqual") or name[:4] == "Test"):
            yield from (f"{name}::{test}" for test in dir(value) if test.startswith("test"))


def run_unittest(case: Any) -> None:
    """Run one test of a `unittest.TestCase`. Raises the first of what it raises or skips."""
    import unittest

    raised: list[BaseException] = []

    class CaseResult(unittest.TestResult):
        def addError(self, test: Any, err: Any) -> None:  # noqa: N802
            raised.extend([err[1]] if err else [])

        addFailure = addError  # noqa: N815

        def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
            self.addError(test, err)

        def addSkip(self, test: Any, reason: str = "a failure that is expected") -> None:  # noqa: N802
            raised.append(Skipped(f"skipped: {reason}"))

        def addExpectedFailure(self, test: Any, err: Any) -> None:  # noqa: N802
            self.addSkip(test)

        addUnexpectedSuccess = addSkip  # noqa: N815

    unittest.TestSuite([case]).run(CaseResult())
    if raised:
        raise raised[0]


def run_doctest(text: str, namespace: Namespace) -> None:
    """Run the examples of a text. Raises AssertionError where one prints something else, and what
    an example raises.
    """
    import doctest

    test = doctest.DocTestParser().get_doctest(text, namespace, "doctest", None, 0)
    try:
        doctest.DebugRunner(verbose=False).run(test, out=str)
    except doctest.DocTestFailure as failure:
        source, got, want = (
            text.strip() for text in (failure.example.source, failure.got, failure.example.want)
        )
        raise AssertionError(f"{source} prints {got!r}, not {want!r}") from None
    except doctest.UnexpectedException as failure:
        raise failure.exc_info[1] from None


class ModulesOfTests(Kind[TestFunctions], judges=TestFunctions):
    """Each is Python of which a worker runs the tests."""

    in_worker = True

    def count(self, check: TestFunctions) -> int:
        """Its tests."""
        return len(collect(check.module))

    def wire(self, check: TestFunctions) -> Json:
        """Its source, and the names of its tests."""
        return [check.module, collect(check.module)]

    def code(self, check: TestFunctions) -> list[str]:
        """Its source."""
        return [check.module]

    def answer(self, check: TestFunctions, task: Task) -> str | None:
        """Returns what the first assert expects."""
        return constant(check.module, task)
