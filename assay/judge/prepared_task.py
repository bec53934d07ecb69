"""What all programs of a task share: the fixed part of their jobs, and the proxy features."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import count, product

from assay.errors import DataError
from assay.judge.calls import RECOMPUTED
from assay.judge.checkers import CHECKERS
from assay.judge.codec import Json, dumps, loads
from assay.judge.kinds.test_functions import collect, doctests
from assay.judge.task_code import leaves_no_trace
from assay.languages import language_named, version
from assay.sandbox.limits import LONGEST, Limits
from assay.sandbox.program import Program
from assay.types import Call, Check, Exchange, Task, TestFunctions

SLACK = 4.0
"""A program has so many times the reference's own CPU time, where that is more than the limit."""


@dataclass(frozen=True, slots=True)
class ProxyFeatures:
    """A program could lie through each of these, so a task gets only those that its reference
    needs.
    """

    mutates: bool = False
    """Arguments that a call changes are changed in the caller too."""
    handles: bool = False
    """Objects that are no data are sent as handles; their attributes, items and calls are
    requests."""
    callbacks: bool = False
    """The program can call functions that a test passes; each call is a request to the worker."""
    time_factor: float = 1.0
    """Multiplies the time limits."""


NO_FEATURES = ProxyFeatures()
FEATURES_TO_TRY = tuple(
    ProxyFeatures(mutates, handles, callbacks)
    for callbacks, handles, mutates in product((False, True), repeat=3)
)
"""What to try, in this order, until the reference passes."""


def time_factor(cpu_seconds: float, limit: float) -> float:
    """The time factor, from 1 to LONGEST, of a task whose reference takes `cpu_seconds`."""
    return min(float(LONGEST), max(1.0, SLACK * cpu_seconds / limit))


LARGE_ANSWER = dumps(RECOMPUTED)
NUMERIC = re.compile(r"^\s*(?:import|from)\s+(?:numpy|scipy|pandas)\b", re.MULTILINE)
HAS_NUMPY = find_spec("numpy") is not None


def wire_call(call: Call) -> Json:
    """A call as the worker gets it: [arguments, [expected] or None, tolerance]."""
    expected = None if call.expected is None else [loads(call.expected.encode())]
    return [loads(call.arguments.encode()), expected, call.tolerance]


class PreparedTask:
    """A task that is judged with these limits. Raises DataError for exchanges beside other
    checks, and for test functions that cannot be run.
    """

    def __init__(
        self, task: Task, limits: Limits, stop_early: bool, strangers: bool = False
    ) -> None:
        self._task, self._limits, self._stop_early = task, limits, stop_early
        self._strangers = strangers
        self.exchanges = tuple(check for check in task.checks if isinstance(check, Exchange))
        """Those of a task whose programs read and print; else empty."""
        if 0 < len(self.exchanges) < len(task.checks):
            raise DataError(
                f"task {task.id!r} has exchanges beside other checks; make two tasks of it"
            )
        self._modules = [one.module for one in task.checks if isinstance(one, TestFunctions)]
        sources = [check.source for check in task.checks if isinstance(check, Check)]
        sources += self._modules
        self._sources = sources
        self._checks = list(self._split())
        self.total = len(self._checks) or len(self.exchanges)
        """All checks; each of a module's tests is one."""
        self.any_order = not sources
        """Whether the tests may run in any order: a check may build on the one before."""
        large = any(isinstance(one, Call) and one.expected == LARGE_ANSWER for one in task.checks)
        self._recomputing = (task.reference or "") if large else ""
        self.language = language_named(task.language)
        if self.language.run and not self.exchanges:
            raise DataError(
                f"task {task.id!r}: a program in {self.language.title} can only read and print;"
                " give it exchanges"
            )
        self.numeric = any(map(NUMERIC.search, [task.setup, *sources]))
        tests = [[type(check).__name__, *astuple(check)] for check in task.checks]
        rules = [task.setup, task.entry_point, task.checker, task.reference, stop_early]
        tools = self.language.tools
        rules += [task.language, *map(partial(version, package=self.language.package), tools)]
        identity = json.dumps([tests, *rules, asdict(limits)]).encode()
        self.digest = hashlib.blake2b(identity, digest_size=32).digest()
        """Differs for every other task and every other limits."""

    def key(self, program: str) -> bytes:
        """The key of a program's verdict in the cache."""
        source = program.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(source, key=self.digest, digest_size=32).digest()

    def _split(self) -> Iterator[Json | Call]:
        """The checks of a function as the worker gets them, but for calls."""
        modules = count()
        for check in self._task.checks:
            match check:
                case Check():
                    yield check.source
                case Call():
                    yield check
                case TestFunctions():
                    at = next(modules)
                    try:
                        names = collect(check.module)
                    except ValueError as error:
                        raise DataError(f"the tests of task {self._task.id!r}: {error}") from None
                    yield from ({"module": at, "name": name} for name in names)

    def checked(self, program: str, features: ProxyFeatures, order: Sequence[int] = ()) -> Program:
        """A function with a worker that runs its checks, in this order of their numbers or as they
        stand. Raises CodecError.
        """
        fields = {
            "program": program,
            "features": [features.mutates, features.handles, features.callbacks],
            "order": order or list(range(self.total)),
        }
        return Program(
            companion=f"{json.dumps(fields)[:-1]},{self._shared_fields}".encode(),
            keeps_companion=self._keeps_worker,
            zygote=zygote_for(program, numeric=self.numeric),
            time_factor=features.time_factor,
            steps=max(1, sum(isinstance(check, Call) for check in self._task.checks)),
        )

    @cached_property
    def _keeps_worker(self) -> bool:
        """Whether a worker that has run the task's code may take another job."""
        task = self._task
        checker = [] if task.checker in {"", *CHECKERS} else [task.checker]
        parts = (task.setup, self._recomputing, *checker, *self._sources)
        code = [source for source in parts if source]
        if any(map(doctests, self._modules)):
            return False  # their code is text
        return not code or (not self._strangers and all(map(leaves_no_trace, code)))

    @cached_property
    def _shared_fields(self) -> str:
        """The fields of a CheckJob that all programs share: the inside of a JSON object."""
        task = self._task
        fields = {
            "reply_mb": self._limits.reply_mb,
            "entry_point": task.entry_point,
            "setup": task.setup,
            "checker": task.checker,
            "reference": self._recomputing,
            "stop_early": self._stop_early,
            "numpy": any(map(NUMERIC.search, [task.checker, task.reference or ""])) or self.numeric,
            "checks": [wire_call(one) if isinstance(one, Call) else one for one in self._checks],
            "modules": self._modules,
        }
        return json.dumps(fields)[1:]


def zygote_for(*sources: str, numeric: bool = False) -> str:
    """The kind of zygote that has loaded what these sources import."""
    return "numpy" if HAS_NUMPY and (numeric or any(map(NUMERIC.search, sources))) else "plain"
