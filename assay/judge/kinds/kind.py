"""What a kind of test is: the class that each of the files beside this one extends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from assay.judge.codec import Json
from assay.judge.protocol import Outcome

if TYPE_CHECKING:  # zygotes import this, and none of what stands here
    from assay.languages import Language
    from assay.sandbox.client import Sandbox
    from assay.sandbox.program import Pool, Result
    from assay.types import Execution, Task, TestOutcome, Verdict

C = TypeVar("C")
Part = Callable[[], Outcome]
"""Runs one of a task's checks in the worker."""


class Decision(NamedTuple):
    """What a kind makes of a run that ended well."""

    verdict: Verdict
    detail: str = ""
    passed: int = 0
    total: int = 1
    tests: tuple[TestOutcome, ...] = ()


class ProgramRun(NamedTuple):
    """A run of a program without a worker."""

    source: str = ""
    stdin: str = ""
    stdout: str | None = None
    """The expected output; None where any is right."""
    beside: str = ""
    """The text of another source file in its folder."""
    files: tuple[tuple[str, str], ...] = ()
    """More files there: paths and texts."""
    decide: Callable[[Result], Decision] | None = None
    """Decides instead of the expected output. It runs in this process, on what the program printed:
    it must withstand any bytes."""
    fetch: tuple[str, ...] = ()
    """Files that the program makes in its folder, for `decide`."""
    forgeable: bool = False
    """Whether the program could forge a pass."""
    pool: Pool | None = None
    """Whose processes run the source, as Python; None where the task's language does."""
    expected: ProgramRun | None = None
    """A run whose output is the expected one. It is made once, for all programs."""
    decided: Decision | None = None
    """What the program's text alone decides; then nothing runs."""
    language: Language | None = None
    """What runs it in place of its task's language."""
    in_boxes: Callable[[Sandbox, bool], Awaitable[Execution]] | None = None
    """Judges in boxes of the sandbox, in place of a run, and may stop early. Raises
    SandboxError.
    """


KINDS: dict[type[Any], Kind[Any]] = {}
"""The kinds whose files are imported, by the class of check that they judge."""


class Kind(Generic[C]):
    """One kind of test: what runs for it and what decides, how a model sees it, and the cheats that
    it must withstand. What a kind does not override has its default here.

    A subclass in a file of this folder, or of a plug-in, is all that a new kind needs; it names the
    class of its checks: `class Exchanges(Kind[Exchange], judges=Exchange)`. In assay's own format,
    the first field of that class says of which kind a check is.
    """

    in_worker: ClassVar[bool] = False
    """Whether a worker calls the program's functions; else a run of the program alone decides. It
    calls `run` of the kind's file for a check, which returns the check's parts."""
    own_time: ClassVar[bool] = False
    """Whether each check has the CPU time to itself."""
    identifies: ClassVar[bool] = True
    """Whether tasks with equal checks are the same task."""
    interface: ClassVar[str] = ""
    """What a prompt says of a program that has no name."""
    started_by_tests: ClassVar[bool] = False
    """Whether what starts a program is the tests', in languages other than Python."""

    def __init_subclass__(cls, judges: type[C] | None = None) -> None:
        if judges is not None:
            KINDS[judges] = cls()

    def judges(self, language: Language) -> bool:
        """Whether a program in this language can have such checks."""
        return language.warm or not self.in_worker

    def count(self, check: C) -> int:
        """How many checks it counts as. Raises ValueError where it cannot be run at all."""
        return 1

    def surroundings(self, check: C) -> str:
        """What decides a verdict beside the check itself, such as files that it names."""
        return ""

    def problem(self, check: C, task: Task) -> str | None:
        """Why it cannot be run, in one line."""
        return None

    def run(self, check: C, program: str, language: Language) -> ProgramRun:
        """The run of a program that decides it, without a worker."""
        raise NotImplementedError

    def runs(
        self, checks: Sequence[C], task: Task, program: str, language: Language
    ) -> list[ProgramRun]:
        """The runs that decide all checks of a task, of which the first is of this kind."""
        return [KINDS[type(check)].run(check, program, language) for check in checks]

    def wire(self, check: C) -> Json:
        """What a worker gets of it, for the `run` of the file that defines this method. Raises
        CodecError.
        """
        return None

    def code(self, check: C) -> list[str]:
        """The data set's Python in it. Checks with code run in the order in which they stand."""
        return []

    def is_open(self, check: C) -> bool:
        """Whether it needs the reference's answer."""
        return False

    def closed(self, check: C, answer: str) -> C:
        """The check with that answer."""
        return check

    def read(self, check: C, result: Result) -> str:
        """That answer as JSON, from a run of the reference without a worker."""
        return ""

    def show(self, check: C, task: Task) -> str:
        """The check for a model to read: Python that asserts it, or a program's input and output.
        Empty where it cannot be shown.
        """
        return ""

    def failure(self, check: C, detail: str, wrong: bool) -> str:
        """How a program fails the check, from the verdict's detail and whether that is `wrong`."""
        return detail

    def defines(self, check: C) -> Sequence[str]:
        """What a program defines where its task names no entry point."""
        return ()

    def files(self, check: C) -> Sequence[str]:
        """The files that a program is, where it has names for them."""
        return ()

    def answer(self, check: C, task: Task) -> str | None:
        """A program that always gives the right answer; None where that is not known."""
        return None

    def cheats(self, check: C, task: Task) -> dict[str, str]:
        """Programs by name that no task may pass, for languages other than Python."""
        return {}
