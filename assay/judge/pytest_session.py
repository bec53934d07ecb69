"""Runs tests in a worker by pytest itself: those that need its fixtures, marks or hooks.

A zygote imports this, and with it pytest, before its walls are up: what a worker imports later it
could not read. pytest reads no settings, loads no plug-ins of others and writes nothing. Each test
is run when its check is due, so that a failure ends what it ends elsewhere.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import platform
import sys
from collections.abc import Callable, Generator
from functools import cached_property, wraps
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest
from _pytest.compat import NOTSET
from _pytest.config import _prepareconfig

from assay.judge.kinds.test_functions import TestRunner
from assay.judge.objects import is_remote
from assay.judge.requests import DETAIL, CandidateFailed
from assay.judge.test_code import ProgramModule, asks_nothing, describe, outcome_of_error, run_piece
from assay.judge.worker_messages import LEFT_OUT, UNASKED, Outcome

if TYPE_CHECKING:
    from assay.judge.kinds.calls import WorkerContext
    from assay.judge.test_code import Piece

UNUSED = (
    "terminal", "cacheprovider", "faulthandler", "pastebin", "junitxml", "doctest",
    "setuponly", "setupplan", "stepwise", "unraisableexception", "threadexception", "tmpdir",
    "legacypath",
)  # fmt: skip
"""pytest's own plug-ins that write, print or collect garbage, or need folders elsewhere."""
ARGUMENTS = [
    "-c", os.devnull, "--rootdir=/", "--noconftest", "--assert=plain", "--capture=no",
    *(part for name in UNUSED for part in ("-p", f"no:{name}")),
]  # fmt: skip
VARIABLES = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "PYTEST_PLUGINS": ""}


class RequestCount(Protocol):
    """What is read of the requests to the program."""

    count: int


NO_REQUESTS: RequestCount = SimpleNamespace(count=0)


class Phase(NamedTuple):
    """What pytest makes of one phase of a test, or of a subtest."""

    outcome: str
    """`passed`, `failed` or `skipped`."""
    error: BaseException | None
    is_expected: bool
    """Whether it does not count, since the test may fail."""


class ItemMarks(NamedTuple):
    """How a test is marked before it runs. What it marks itself with may be the program's doing."""

    skip: bool
    xfail: bool
    on_condition: bool
    """Whether a condition has decided that."""

    @classmethod
    def of(cls, item: pytest.Item) -> ItemMarks:
        """Those of a test, its class and its module."""
        places = [getattr(item, name, None) for name in ("obj", "cls")]
        skips, xfails = (
            any(condition for mark in item.iter_markers(name)
                for condition in (mark.kwargs.get("condition"), *mark.args))
            for name in ("skipif", "xfail")
        )  # fmt: skip
        by_unittest = any(getattr(it, "__unittest_skip__", False) for it in places)
        skip = skips or by_unittest or any(True for _ in item.iter_markers("skip"))
        xfail = any(True for _ in item.iter_markers("xfail"))
        return cls(
            skip,
            xfail or expects_failure(item),
            skips or xfails or by_unittest or has_no_case(item),
        )


def expects_failure(item: pytest.Item) -> bool:
    """Whether unittest expects that the test fails."""
    places = [getattr(item, name, None) for name in ("obj", "cls")]
    return any(getattr(it, "__unittest_expecting_failure__", False) for it in places)


def has_no_case(item: pytest.Item) -> bool:
    """Whether a parameter of the test has no value at all, for which pytest skips it."""
    case = getattr(item, "callspec", None)
    return case is not None and any(value is NOTSET for value in case.params.values())


class TestModule(pytest.Module):
    """A module of tests that has run already."""

    loaded: ModuleType

    def _getobj(self) -> ModuleType:
        return self.loaded


class SessionPlugin:
    """Hears from pytest how its tests end, and brings the fixtures that a worker has in another
    way.
    """

    def __init__(self) -> None:
        self.requests = NO_REQUESTS
        self.phases: list[Phase] = []
        """Of the test that runs."""
        self.collect_error = ""
        self._asked: list[Any] = []
        """The fixtures that have asked the program, however they ended."""
        self._loop: asyncio.Runner | None = None

    def has_asked(self, item: pytest.Item) -> bool:
        """Whether a fixture of the test has asked the program, for this test or an earlier one."""
        fixtures = getattr(item, "_fixtureinfo", None)
        used = (
            [it for each in fixtures.name2fixturedefs.values() for it in each] if fixtures else []
        )
        return any(it is fixture for it in self._asked for fixture in used)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep why tests cannot be collected."""
        if report.failed:
            self.collect_error = str(report.longrepr).strip().rpartition("\n")[2]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: Any, request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Note whether a fixture asks the program; wait for one that is a coroutine."""
        fixturedef.func = self._waiting(fixturedef.func)
        before = self.requests.count
        try:
            return (yield)
        finally:
            if self.requests.count > before:
                self._asked.append(fixturedef)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Run a test that is a coroutine."""
        if not inspect.iscoroutinefunction(pyfuncitem.obj):
            return None
        names = pyfuncitem._fixtureinfo.argnames
        self._run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
        return True

    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> pytest.TestReport:
        """A report without the text of a traceback, which takes long and nobody reads."""
        error = call.excinfo and call.excinfo.value
        skipped = isinstance(error, pytest.skip.Exception)
        outcome = "skipped" if skipped else "failed" if error else "passed"
        parts: Any = item.nodeid, ("", 0, item.name), {}, outcome, None, call.when
        return pytest.TestReport(*parts)

    @pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_runtest_makereport")
    def pytest_note_report(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep what pytest's own plug-ins have made of the report."""
        report = yield
        error = call.excinfo.value if call.excinfo else None
        by_call = isinstance(error, pytest.xfail.Exception) and not expects_failure(item)
        expected = hasattr(report, "wasxfail") and not by_call
        if report.when == "call" or not report.passed:
            self.phases.append(Phase(report.outcome, error, expected))
        return report

    @pytest.fixture
    def tmp_path(self, tmp_path_factory: TemporaryFolders) -> Path:
        """A folder that the program has too, by the same path from where it works."""
        return tmp_path_factory.mktemp("test")

    @pytest.fixture(scope="session")
    def tmp_path_factory(self) -> TemporaryFolders:
        """Makes such folders."""
        return TemporaryFolders()

    @pytest.fixture
    def capfd(self, capsys: Any) -> Any:
        """What the program prints arrives at `sys.stdout`, and at no descriptor."""
        return capsys

    @pytest.fixture
    def capfdbinary(self, capsysbinary: Any) -> Any:
        """The same as bytes."""
        return capsysbinary

    def _run(self, coroutine: Any) -> Any:
        self._loop = self._loop or asyncio.Runner()
        return self._loop.run(coroutine)

    def _waiting(self, function: Any) -> Any:
        """A fixture's function, which waits where it is a coroutine."""
        if inspect.iscoroutinefunction(function):
            return wraps(function)(lambda *args, **keywords: self._run(function(*args, **keywords)))
        if not inspect.isasyncgenfunction(function):
            return function

        @wraps(function)
        def generate(*args: Any, **keywords: Any) -> Generator[Any, None, None]:
            values = function(*args, **keywords)
            yield self._run(anext(values))
            self._run(anext(values, None))

        return generate


class TemporaryFolders:
    """Makes folders below the one in which the tests work."""

    def __init__(self) -> None:
        self._count = 0

    def mktemp(self, basename: str, numbered: bool = True) -> Path:
        """A new folder."""
        self._count += 1
        path = Path(f"{basename}{self._count}" if numbered else basename)
        path.mkdir()
        return path

    def getbasetemp(self) -> Path:
        """Where they lie."""
        return Path()


def configured(plugin: SessionPlugin) -> pytest.Session:
    """A session of pytest without tests."""
    os.environ.update(VARIABLES)
    config = _prepareconfig([*ARGUMENTS], [plugin])
    config._do_configure()
    session = pytest.Session.from_config(config)
    config.hook.pytest_sessionstart(session=session)
    return session


def collected(session: pytest.Session, module: ModuleType) -> list[pytest.Item]:
    """The tests of a module, in their order. Raises whatever pytest raises."""
    node: TestModule = TestModule.from_parent(session, path=Path(f"/{module.__name__}.py"))
    node.loaded = module
    session.items = [*session.genitems(node)]
    session.testscollected = len(session.items)
    session.config.hook.pytest_collection_modifyitems(
        session=session, config=session.config, items=session.items
    )
    return session.items


class PytestRunner(TestRunner):
    """Runs the tests of a module by pytest."""

    def __init__(self, piece: Piece, context: WorkerContext, names: list[str]) -> None:
        super().__init__(piece, context)
        self._names = names
        self._connection = context.connection
        (self._session,) = READY
        self._plugin = PLUGIN
        self._plugin.requests = context.connection.requests
        self._ended_by = ""
        """The test that ended the session, as by KeyboardInterrupt."""
        self._following: dict[pytest.Item | None, pytest.Item | None] = {}
        """By each test, the one that runs after it: pytest keeps what both have."""
        context.builtin.modules.update(replaced_modules())

    @cached_property
    def _items(self) -> dict[str, list[pytest.Item]]:
        """By each name of a check, the tests of pytest's that it stands for."""
        module = ModuleType(self._piece[1].strip("<>"))
        vars(module).update(
            (name, value) for name, value in self.bound.items()
            if not (is_remote(value) or isinstance(value, ProgramModule))
        )  # fmt: skip
        groups: dict[str, list[pytest.Item]] = {}
        for item in collected(self._session, module):
            if not self.body_asked:
                self._settle_conditions(item)
            classes = [node.name for node in item.listchain() if isinstance(node, pytest.Class)]
            test = "::".join([*classes, getattr(item, "originalname", item.name)])
            groups.setdefault(test, []).append(item)
        items = dict[str, list[pytest.Item]]()
        for name in self._names:
            test, _, number = name.removesuffix("]").partition("[")
            cases = sum(it.partition("[")[0] == test for it in self._names)
            items[name] = groups.get(test, [])[int(number or 0) :: cases]
        order: list[pytest.Item | None] = [it for each in items.values() for it in each]
        self._following = dict(zip(order, [*order[1:], None], strict=False))
        return items

    def _settle_conditions(self, item: pytest.Item) -> None:
        """Evaluate conditions that are texts. pytest would do so after the program's answers, where
        a text that is about to run as code may be an answer.
        """
        for mark in item.iter_markers():
            if mark.name in ("skipif", "xfail") and isinstance(next(iter(mark.args), None), str):
                names = {**self._context.namespace, "sys": sys, "os": os, "platform": platform}
                run = run_piece(
                    (f"result = ({mark.args[0]})", "<condition>"), names, self._connection
                )
                if run.how == "held":
                    reason = {"reason": f"condition: {mark.args[0]}"}
                    object.__setattr__(mark, "args", (bool(names["result"]),))
                    object.__setattr__(mark, "kwargs", {**reason, **mark.kwargs})

    def ended(self, name: str) -> Outcome:
        """How the tests of one name end."""
        requests, items, error = self._connection.requests, list[pytest.Item](), ""
        before = requests.beyond_names
        try:
            items = self._items.get(name, [])
        except (CandidateFailed, ConnectionError):
            raise
        except BaseException as raised:  # noqa: BLE001  pytest refuses the tests
            error = f"{type(raised).__name__}: {raised}"
        self.body_asked |= requests.beyond_names > before  # answers may have made or marked tests
        if not items:
            error = error or self._plugin.collect_error or "pytest does not collect it"
            if self.body_asked:  # an answer may be why
                return Outcome("wrong", error[:DETAIL])
            return Outcome("unasked", f"{UNASKED}: {error}"[:DETAIL])
        outcomes = list[Outcome]()
        for item in items:
            outcomes.append(self._end_of(item, name))
            if outcomes[-1].how not in ("held", LEFT_OUT):
                return outcomes[-1]
        return min(outcomes, key=lambda outcome: outcome.how == LEFT_OUT)

    def _end_of(self, item: pytest.Item, name: str) -> Outcome:
        if self._ended_by:
            return Outcome("wrong", f"{self._ended_by} has ended the tests")
        requests, self._plugin.phases = self._connection.requests, []
        before, marks = requests.count, ItemMarks.of(item)
        try:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=self._following[item])
        except BaseException as error:  # noqa: BLE001  pytest passes on what ends its session
            self._ended_by = name
            self._plugin.phases.append(Phase("failed", error, is_expected=False))
        has_asked = requests.count > before
        phases = self._plugin.phases
        failed = next((it.error for it in phases if it.outcome == "failed"), None)
        if failed is None and any(it.outcome == "skipped" or it.is_expected for it in phases):
            by_fixture = self._plugin.has_asked(item) and not marks.skip
            fails_as_expected = marks.xfail and all(it.is_expected for it in phases)
            if (has_asked or by_fixture) and not fails_as_expected:
                return Outcome("wrong", self._why_skipped())
            return self._end_of_skip(marks)
        if any(it.outcome == "failed" for it in phases) or not phases:
            reason = failed or AssertionError("pytest does not let it pass")
            end = outcome_of_error(reason, self._piece, self._connection)
        else:
            end = Outcome("held")
        of_answers = hasattr(item, "callspec") and self.body_asked
        proves = has_asked or self._plugin.has_asked(item) or of_answers
        if not proves and asks_nothing(end, before, self._connection):
            return Outcome("unasked", f"{UNASKED}: {end.detail or name}"[:DETAIL])
        return end

    def _end_of_skip(self, marks: ItemMarks) -> Outcome:
        """Of a test that is skipped, or fails where it may: it proves nothing. It is left out,
        unless an answer may have had a part in that.
        """
        why = self._why_skipped()
        if self.body_asked and marks.on_condition:
            return Outcome("wrong", why)
        if self.body_asked:  # an answer may have chosen its marks
            return Outcome("unasked", f"{UNASKED}: {why}"[:DETAIL])
        return Outcome(LEFT_OUT, why)

    def _why_skipped(self) -> str:
        error = next((it.error for it in self._plugin.phases if it.error), None)
        return describe(error, *self._piece) if error else "it is expected to fail"


def replaced_modules() -> dict[str, Any]:
    """What tests import in place of plug-ins for coroutines, whose part SessionPlugin plays."""

    def fixture(function: Callable[..., Any] | None = None, **options: Any) -> Any:
        options.pop("loop_scope", None)
        return pytest.fixture(function, **options) if function else pytest.fixture(**options)

    return {"pytest_asyncio": SimpleNamespace(fixture=fixture)}


REHEARSAL = """
import pytest, unittest, warnings
@pytest.fixture(params=[1, 2])
def number(request):
    yield request.param
@pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.skip(reason="no"))])
def test_a(x, number, capsys, caplog, recwarn, monkeypatch, request):
    print(x)
    assert capsys.readouterr().out
    monkeypatch.setattr("os.sep", "/")
    with pytest.raises(ValueError, match="x") as info:
        raise ValueError("x")
    assert info.match("x") and {"a": 1.0} == pytest.approx({"a": 1.0})
    with pytest.warns(UserWarning):
        warnings.warn("x")
@pytest.mark.xfail
def test_b():
    assert False
async def test_c():
    pass
class TestD(unittest.TestCase):
    def test_d(self):
        with self.subTest():
            self.assertEqual(1, 2)
"""


PLUGIN = SessionPlugin()
READY: list[pytest.Session] = []
"""The session that each fork has for its tests: to make one takes ten times as long as a test."""


def rehearse() -> None:
    """Run tests of ours, so that forks inherit all that pytest imports when it is used; make the
    session that they use.
    """
    before = dict(os.environ)
    module = ModuleType("tests")
    exec(REHEARSAL, vars(module))
    plugin = SessionPlugin()
    session = configured(plugin)
    items = collected(session, module)
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
    session.config._ensure_unconfigure()
    failed = [it.error for it in plugin.phases if it.outcome == "failed"]
    assert len(failed) == 1, plugin.phases
    READY[:] = [configured(PLUGIN)]
    os.environ.clear()  # a program would see what pytest leaves there
    os.environ.update(before)
