"""Test functions and classes of pytest and unittest, and doctests: each test is a check."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import chain, product
from types import FunctionType
from typing import TYPE_CHECKING, Any

from assay.checks import TestFunctions
from assay.errors import NotInstalledError
from assay.judge.codec import Json
from assay.judge.kinds.asserts import constant
from assay.judge.kinds.calls import WorkerContext
from assay.judge.kinds.kind import InWorker, Part
from assay.judge.kinds.pytest_module import CASES, Skipped
from assay.judge.pytest_needs import (
    Function,
    fixture_mark,
    fixtures,
    needs_pytest,
    parameters,
    parameters_of_all,
)
from assay.judge.requests import DETAIL
from assay.judge.task_code import nodes_of, parsed
from assay.judge.test_code import (
    Namespace,
    Piece,
    asks_nothing,
    outcome_of,
    require_asked,
    run_piece,
)
from assay.judge.worker_messages import PYTEST_SESSION, UNASKED, Outcome
from assay.syntax_trees import UNPARSABLE, read_text, walk

if TYPE_CHECKING:
    from assay.types import Task

PROMPT = re.compile(r"^[ \t]*>>> ", re.MULTILINE)
NAME = re.compile(r"(?:(\w+)::)?(\w+)(?:\[(\d+)\])?")
"""Of a test: class, function, number of the case."""
MOST_TESTS = 20_000
"""Of one module: a few lines of marks or of classes that inherit could name billions."""


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
        Raises ValueError where they are too many.
        """
        counts = [_length(values) for _, values in parameters(self._marks())]
        if not counts or 0 in counts:
            return [self.name]
        number = 1
        for count in counts:  # their product may have a million digits
            number *= count
            _require_few(number)
        return [f"{self.name}[{n}]" for n in range(number)]

    def fixtures(self) -> list[str]:
        """The arguments that no mark of its own gives it."""
        if self.unittest:
            return []
        names = {name for names, _ in parameters(self._marks()) for name in names}
        required = _required(self.function, self.holder is not None)
        return [name for name in required if name not in names]

    def is_coroutine(self) -> bool:
        """Whether it has to be awaited, other than by unittest."""
        return isinstance(self.function, ast.AsyncFunctionDef) and not self.unittest

    def is_nested(self) -> bool:
        """Whether its class stands in another."""
        return self.name.count("::") > 1

    def _marks(self) -> list[ast.expr]:
        of_holder = self.holder.decorator_list if self.holder else []
        return [*self.function.decorator_list, *of_holder]


def collect(source: str) -> list[str]:
    """The names of a module's tests: `test_a`, `TestB::test_c`, `test_d[0]` for each case that its
    text shows, `doctest[0]` where there is nothing else.

    Raises ValueError for code that is no Python, has no test or too many, or needs what is not
    there.
    """
    try:
        tree, nodes = read_text(source)
    except UNPARSABLE as error:
        if not PROMPT.search(source):
            raise ValueError(f"no valid Python ({error})") from None
        tree, nodes = ast.Module([], []), []
    tests = _tests_of(tree)
    available = fixtures(nodes) | parameters_of_all(nodes)
    for test in tests:
        for name in test.fixtures():
            if name not in available:
                raise ValueError(f"{test.name} needs the fixture {name!r}, which is not there")
    names: list[str] = []
    for test in tests:
        names += test.cases()
        _require_few(len(names))
    names = names or [f"doctest[{n}]" for n, _ in enumerate(doctests(source))]
    if not names:
        raise ValueError("no test; add one")
    return names


def _require_few(tests: int) -> None:
    """Raises ValueError for more tests than a module may have."""
    if tests > MOST_TESTS:
        raise ValueError(f"more than {MOST_TESTS:,} tests; make several tasks of them")


def runs_in_pytest(source: str) -> bool:
    """Whether pytest itself must run the tests of a module."""
    tree = parsed(source)
    return needs_pytest(nodes_of(source)) or any(
        test.fixtures() or test.is_coroutine() or test.is_nested() for test in _tests_of(tree)
    )


def _tests_of(tree: ast.Module) -> list[TextTest]:
    """The tests of a module; the last of a name is the one that runs."""
    return [*{test.name: test for test in _tests([*_statements(tree.body)])}.values()]


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
    owners = (*Function.__args__, ast.ClassDef, ast.Module)
    texts = [ast.get_docstring(node) or "" for node in nodes_of(source) if isinstance(node, owners)]
    texts = texts if parsed(source).body else [source]
    return [text for text in texts if PROMPT.search(text)]


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when the module does, those in blocks too."""
    left = [*reversed(body)]
    while left:  # a chain of elif is as deep as it is long
        node = left.pop()
        if isinstance(node, ast.If) and "__name__" in _names([node.test]):
            continue
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            parts = (getattr(node, part, []) for part in ("body", "orelse", "finalbody"))
            left += reversed([*chain.from_iterable(parts)])


def _tests(body: Sequence[ast.stmt]) -> Iterator[TextTest]:
    """The tests of a block. Raises ValueError where they are too many."""
    holders = _holders(body)
    used = _names(body) if any(isinstance(node, Function) for node in body) else set[str]()
    for node in body:
        if isinstance(node, Function) and node.name.startswith("test") and not fixture_mark(node):
            # a function with parameters that others use is their helper
            if not (_required(node, False) and node.name in used and not node.decorator_list):
                yield TextTest(node.name, node)
        elif isinstance(node, ast.ClassDef):
            holder = holders[node]
            is_held = holder.unittest or node.name[:4] == "Test"
            for test in holder.methods.values() if is_held else ():
                yield TextTest(f"{node.name}::{test.name}", test, node, holder.unittest)
            inner = [it for it in node.body if isinstance(it, ast.ClassDef)]
            for nested in _tests(inner) if node.name[:4] == "Test" else ():
                yield replace(nested, name=f"{node.name}::{nested.name}")


@dataclass(frozen=True, slots=True)
class Holder:
    """What a class has of tests, inherited ones too."""

    unittest: bool
    """Whether it is a `unittest.TestCase`."""
    methods: dict[str, Function]
    """Its tests by name."""


def _holders(body: Sequence[ast.stmt]) -> dict[ast.ClassDef, Holder]:
    """The classes of a block; the bases of each stand before it."""
    holders, by_name, total = dict[ast.ClassDef, Holder](), dict[str, Holder](), 0
    for node in body:
        if not isinstance(node, ast.ClassDef):
            continue
        names = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
        bases = [by_name[name] for name in dict.fromkeys(reversed(names)) if name in by_name]
        methods: dict[str, Function] = {}
        for base in bases:
            methods |= base.methods
            total += len(base.methods)
            _require_few(total)
        defined = [part for part in node.body if isinstance(part, Function)]
        methods |= {part.name: part for part in defined if part.name[:4] == "test"}
        is_case = any(name.endswith("TestCase") for name in names)
        unittest = is_case or any(base.unittest for base in bases)
        holders[node] = by_name[node.name] = Holder(unittest, methods)
    return holders


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
    return {node.id for node in walk(*nodes) if isinstance(node, ast.Name)}


def run(wire: list[Any], number: int, context: WorkerContext) -> list[Part]:
    """A part for each test of [source, names]."""
    source, names = wire
    session: Any = sys.modules.get(PYTEST_SESSION)
    piece = (source, f"<tests {number}>")
    in_pytest = session is not None and not names[0].startswith("doctest[")
    runner = (
        session.PytestRunner(piece, context, names) if in_pytest else TestRunner(piece, context)
    )
    return [partial(runner.run, name) for name in names]


class TestRunner:
    """Runs the tests of a module in the worker, and its body before the first."""

    def __init__(self, piece: Piece, context: WorkerContext) -> None:
        self._piece, self._context = piece, context
        self._namespace = context.namespace
        self._raised_by_body: BaseException | None = None
        self.bound: Namespace = {}
        """What the module's body has bound."""
        self.body_asked = False
        """Whether it has asked the program for more than functions and classes."""

    def run(self, name: str) -> Outcome:
        """Run one test by its name."""
        ended, connection = self._body, self._context.connection
        if ended.how == "held":
            ended = self.ended(name)
        else:
            connection.raised_by_test = self._raised_by_body
        if ended.how in ("held", "unasked"):
            return ended
        return ended._replace(detail=f"{name}: {ended.detail}"[:DETAIL])

    def ended(self, name: str) -> Outcome:
        """How a test ends, once the body has run."""
        connection = self._context.connection
        act = partial(outcome_of, partial(self._run_test, name), self._piece, connection)
        return require_asked(act, connection, name)

    @cached_property
    def _body(self) -> Outcome:
        """How the module's body has ended."""
        if is_doctest(self._piece[0]):
            return Outcome("held")
        before, requests = dict(self._namespace), self._context.connection.requests
        names_before = set(before)
        asked_before, beyond_before = requests.count, requests.beyond_names
        ended = run_piece(self._piece, self._namespace, self._context.connection)
        self._raised_by_body = self._context.connection.raised_by_test
        self.bound = {
            name: value
            for name, value in self._namespace.items()
            if name not in before or before[name] is not value
        }
        in_text = {test.partition("[")[0] for test in collect(self._piece[0])}
        in_text |= {it.name for it in parsed(self._piece[0]).body if isinstance(it, Function)}
        others = ", ".join(sorted(set(_made(self._namespace, names_before)) - in_text))
        if ended.how == "held" and others:
            return Outcome("unasked", f"{UNASKED}: {others}: made while the module runs"[:DETAIL])
        if ended.how != "held" and asks_nothing(ended, asked_before, self._context.connection):
            return Outcome("unasked", f"{UNASKED}: {ended.detail}"[:DETAIL])
        self.body_asked = requests.beyond_names > beyond_before
        if self.body_asked:
            self._context.builtin.take_answers(self._namespace, names_before, self._piece[0])
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
        if self.body_asked and case is None and cases != [{}]:  # they may be of the answers
            self._context.connection.requests.count += 1
            if not cases:
                raise AssertionError("there is no case to run")
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


class ModulesOfTests(InWorker[TestFunctions], judges=TestFunctions):
    """Each is Python of which a worker runs the tests."""

    def count(self, check: TestFunctions) -> int:
        """Its tests."""
        return len(collect(check.module))

    def imports(self, check: TestFunctions) -> str:
        """What runs its tests by pytest, where they need that."""
        if not runs_in_pytest(check.module):
            return ""
        if find_spec("pytest") is None:
            raise NotInstalledError(
                "its tests need pytest, which is not installed: pip install pytest"
            )
        return PYTEST_SESSION

    def wire(self, check: TestFunctions) -> Json:
        """Its source, and the names of its tests."""
        return [check.module, collect(check.module)]

    def code(self, check: TestFunctions) -> list[str]:
        """Its source."""
        return [check.module]

    def answer(self, check: TestFunctions, task: Task) -> str | None:
        """Returns what the first assert expects."""
        return constant(check.module, task)
