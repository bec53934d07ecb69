"""What a kind of test says of itself. Each of the files beside this one makes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from assay.judge.codec import Json
from assay.judge.pieces import LazyBuiltins, Namespace
from assay.judge.protocol import Outcome
from assay.judge.proxy import Connection

if TYPE_CHECKING:  # zygotes import this, and none of what stands here
    from assay.judge.kinds.calls import Caller
    from assay.languages import Language
    from assay.sandbox.program import Result
    from assay.types import Task, Trust, Verdict

C = TypeVar("C")
Part = Callable[[], Outcome]
"""Runs one of a task's checks in the worker."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What the checks of a job share in the worker."""

    connection: Connection
    builtin: LazyBuiltins
    namespace: Namespace
    caller: Caller


class Decision(NamedTuple):
    """What a kind makes of a run that ended well."""

    verdict: Verdict
    detail: str = ""
    passed: int = 0
    total: int = 1


class ProgramRun(NamedTuple):
    """A run of a program without a worker."""

    source: str = ""
    stdin: str = ""
    stdout: str | None = None
    """The expected output; None where any is right."""
    beside: str = ""
    """The text of another source file in its folder."""
    decide: Callable[[Result], Decision] | None = None
    """Decides instead of the expected output. It runs in this process, on what the program printed:
    it must withstand any bytes."""
    fetch: tuple[str, ...] = ()
    """Files that the program makes in its folder, for `decide`."""
    trusted: tuple[Trust, ...] = ()
    """What a pass takes on trust."""
    warm: str = ""
    """The kind of zygote that runs the source, as Python; empty where the task's language does."""
    expected: ProgramRun | None = None
    """A run whose output is the expected one. It is made once, for all programs."""
    decided: Decision | None = None
    """What the program's text alone decides; then nothing runs."""
    language: Language | None = None
    """What runs it in place of its task's language."""


def nothing(check: Any, *_: Any) -> Any:
    """The default of what a kind does not have."""
    return None


@dataclass(frozen=True, slots=True)
class Kind(Generic[C]):
    """One kind of test: how rows become it, what the worker runs, how a model sees it, and a cheat
    that it must withstand.
    """

    field: str
    """The field that only this kind has among a row's `checks` in assay's own format."""
    show: Callable[[C, Task], str] = lambda check, task: ""
    """The check for a model to read: Python that asserts it, or a program's input and output. Empty
    where it cannot be shown."""
    answer: Callable[[C, Task], str | None] = nothing
    """A program that always gives the answer that the check wants; None if that is not known."""
    failure: Callable[[C, str, bool], str] = lambda check, detail, wrong: detail
    """How a program fails the check, from the verdict's detail and whether that is `wrong`."""
    with_value: Callable[[C], C] = lambda check: check
    """The check that says in its detail which value it got, where it can."""
    run_of: Callable[[C, str, Language], ProgramRun] | None = None
    """The run of a program that decides it, without a worker; None where a worker runs it against
    functions."""
    reads_stdin: bool = False
    """Whether the program reads standard input and prints."""
    run_of_all: Callable[[Sequence[C], Task, str, Language], ProgramRun] | None = None
    """The run that decides all checks of a task, in a language whose functions no worker calls."""
    files: Callable[[C], Sequence[str]] = lambda check: ()
    """The files that a program is, where it has names for them."""
    wire: Callable[[C], Json] = nothing
    """What the worker gets of it. Raises CodecError."""
    run: Callable[[Any, int, Bench], Sequence[Part]] = nothing
    """From that and the number of checks before it, the parts that the worker runs."""
    count: Callable[[C], int] = lambda check: 1
    """How many checks it counts as. Raises ValueError where it cannot be run at all."""
    code: Callable[[C], list[str] | None] = nothing
    """The data set's Python in it. Checks with code run in the order in which they stand."""
    identifies: bool = True
    """Whether tasks with equal checks are the same task."""
    own_time: bool = False
    """Whether each has the CPU time to itself."""
    problem: Callable[[C, Task], str | None] = nothing
    """Why it cannot be run, in one line."""
    is_open: Callable[[C], bool | None] = nothing
    """Whether it needs the reference's answer."""
    is_recomputed: Callable[[C], bool | None] = nothing
    """Whether the worker itself runs the reference for that answer, which is too large to send."""
    closed: Callable[[C, str], C] = nothing
    """The check with that answer."""
    read: Callable[[C, Result], str] = nothing
    """That answer as JSON, from a run of the reference without a worker."""
    cheats: Callable[[C, Task], dict[str, str]] = lambda check, task: {}
    """Programs by name that no task may pass, for languages other than Python."""
