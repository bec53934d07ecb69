"""What a kind of test is: the classes that the files beside this one extend."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from assay.errors import SettingsError
from assay.judge.codec import Json
from assay.judge.worker_messages import Outcome

if TYPE_CHECKING:  # zygotes import this, and none of what stands here
    from assay.judge.kinds.workbench import Workbench
    from assay.languages import Language
    from assay.sandbox.box import Box
    from assay.sandbox.box_init import BoxSpec
    from assay.types import Execution, Task

C = TypeVar("C")
Part = Callable[[], Outcome]
"""Runs one of a task's checks in the worker."""


KINDS: dict[type[Any], Kind[Any]] = {}
"""The kinds whose files are imported, by the class of check that they judge."""


def remember(module: str) -> None:
    """Keeps the source of a file outside of assay that has a kind. A worker runs it, and it is part
    of verdicts' keys.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    if file and module.partition(".")[0] != "assay":
        from assay.plugin_code import remember_source

        remember_source(module)


def require_new(judged: type[Any], module: str) -> None:
    """Raises SettingsError where a module cannot have a kind for this class of checks."""
    name = judged.__name__
    first = fields(judged)[:1] if is_dataclass(judged) else ()
    if not first or not any(field.name == "hidden" for field in fields(judged)):
        raise SettingsError(
            f"checks of the class {name} are no dataclass with a field 'hidden'; add"
            " @dataclass(frozen=True) and `hidden: bool = True`"
        )
    for other, kind in KINDS.items():
        if type(kind).__module__ == module:
            continue  # its file is run again
        if other is judged:
            raise SettingsError(f"two kinds judge checks of the class {name}; remove one of them")
        if fields(other)[0].name == first[0].name:
            raise SettingsError(
                f"the first field of {name} is {first[0].name!r}, as that of {other.__name__}; rows"
                " are told apart by it: rename it"
            )


class Kind(ABC, Generic[C]):
    """One kind of test: the coroutine that judges a program, how a model sees the tests, and the
    cheats that they must withstand. What a kind does not override has its default here.

    A subclass in a file of this folder, or of a plug-in, is all that a new kind needs; it names the
    class of its checks: `class Exchanges(Kind[Exchange], judges=Exchange)`. In assay's own format,
    the first field of that class says of which kind a check is.
    """

    is_plugin: ClassVar[bool] = True
    """A file that defines one registers it, as `registry.load_plugins` asks."""

    started_by_tests: ClassVar[bool] = False
    """Whether what starts a program is the tests', in languages other than Python."""

    always_forgeable: ClassVar[bool] = False
    """Whether the program runs beside what decides, so that it could have forged every pass."""

    def __init_subclass__(cls, judges: type[C] | None = None) -> None:
        remember(cls.__module__)
        if judges is not None:
            require_new(judges, cls.__module__)
            KINDS[judges] = cls()

    @abstractmethod
    async def judge(
        self, workbench: Workbench, checks: Sequence[C], task: Task, program: str
    ) -> Execution:
        """Judges a program by all checks of its task, of which the first is of this kind."""

    def judges(self, language: Language) -> bool:
        """Says whether a program in this language can have such checks."""
        return True

    def count(self, check: C) -> int:
        """Returns how many checks it counts as. Raises ValueError where it cannot be run at all."""
        return 1

    def same(self, check: C, task: Task) -> Hashable:
        """Returns what tells tasks apart. Tasks for which it is equal for all checks are the same
        task.
        """
        return check

    def interface(self, check: C) -> str:
        """Returns what a prompt says of a program that has no name."""
        return ""

    def surroundings(self, check: C) -> str:
        """Returns what decides a verdict beside the check itself, such as files that it names."""
        return ""

    def problem(self, check: C, task: Task) -> str | None:
        """Says why it cannot be run, in one line."""
        return None

    def code(self, check: C) -> list[str]:
        """Returns the data set's Python in it. Checks with code run in the order in which they
        stand.
        """
        return []

    def show(self, check: C, task: Task) -> str:
        """Returns the check for a model to read: Python that asserts it, or a program's input and
        output. It is empty where the check cannot be shown.
        """
        return ""

    def failure(self, check: C, detail: str, wrong: bool) -> str:
        """Says how a program fails the check, from the verdict's detail and whether that is
        `wrong`.
        """
        return detail

    def defines(self, check: C) -> Sequence[str]:
        """Returns what a program defines where its task names no entry point."""
        return ()

    def files(self, check: C) -> Sequence[str]:
        """Returns the files that a program is, where it has names for them."""
        return ()

    def answer(self, check: C, task: Task) -> str | None:
        """Returns a program that always gives the right answer, and None where that is not
        known.
        """
        return None

    def demonstration(self, check: C, task: Task) -> str | None:
        """Returns the program that SFT learns where the task has no demonstrations, and None
        without one.
        """
        return task.reference

    def cheats(self, check: C, task: Task) -> dict[str, str]:
        """Returns programs by name that no task may pass, for languages other than Python."""
        return {}


class EachCheck(Kind[C]):
    """A kind that judges a program by one check after the other."""

    is_one_test: ClassVar[bool] = True
    """Whether a check is one test; else what comes of a task's only check names its tests."""

    async def judge(
        self, workbench: Workbench, checks: Sequence[C], task: Task, program: str
    ) -> Execution:
        """Judges by each check by itself."""
        tests = {
            at: partial(KINDS[type(check)].judge_check, workbench, check, task, program)  # type: ignore[attr-defined]
            for at, check in enumerate(checks)
        }
        if len(tests) == 1 and not self.is_one_test:
            return await self.judge_check(workbench, checks[0], task, program)
        return await workbench.in_turn(tests)

    @abstractmethod
    async def judge_check(
        self, workbench: Workbench, check: C, task: Task, program: str
    ) -> Execution:
        """Judges a program by one check."""


class InTree(EachCheck[C]):
    """A kind whose programs are changes of a tree, in which a model can work: a change of its check
    in a box, written as a diff, is a program.
    """

    is_one_test = False
    always_forgeable = True

    @abstractmethod
    async def work_spec(self, check: C) -> BoxSpec:
        """Returns the box in which a model works. Raises DataError."""

    async def make_ready(self, box: Box) -> str:
        """Makes such a box ready, and returns why that could not be done, if so. The model works
        all the same.
        """
        return ""

    def image(self, check: C) -> str:
        """Returns the image that is the root of such a box. It is empty where that is the
        machine's.
        """
        return ""


class InWorker(Kind[C]):
    """A kind whose checks a worker runs, which calls the program's functions. It calls `run` of the
    kind's file for a check, which returns the check's parts.
    """

    async def judge(
        self, workbench: Workbench, checks: Sequence[C], task: Task, program: str
    ) -> Execution:
        """Judges by all checks in one worker."""
        return await workbench.test(program)

    def judges(self, language: Language) -> bool:
        """Says whether a worker can call programs in this language."""
        return language.warm

    def imports(self, check: C) -> str:
        """Returns the module that its worker must have imported and rehearsed before it is
        enclosed. Raises NotInstalledError where that needs a package that is not there.
        """
        return ""

    def steps(self, check: C) -> int:
        """Returns how many calls it makes that have a program's CPU time each. Other checks share
        it.
        """
        return 0

    @abstractmethod
    def wire(self, check: C) -> Json:
        """Returns what a worker gets of it, for the `run` of the file that defines this method.
        Raises CodecError.
        """


class AsksReference(Kind[C]):
    """A kind whose checks may leave the right answers to the task's reference."""

    @abstractmethod
    def is_open(self, check: C) -> bool:
        """Says whether it needs the reference's answer."""

    @abstractmethod
    async def answers(
        self, workbench: Workbench, checks: Sequence[C], task: Task
    ) -> tuple[Execution, list[str]]:
        """Returns how the reference ends on these checks, which are open, and its answers
        as JSON.
        """

    @abstractmethod
    def closed(self, check: C, answer: str) -> C:
        """Returns the check with that answer."""
