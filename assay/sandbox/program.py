"""What the sandbox runs, and what came of it: the data between the trainer and the supervisor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from assay.sandbox.limits import INT_DIGITS, LARGE
from assay.sandbox.sockets import message

HASH_SEEDS = 5
"""Values of PYTHONHASHSEED that a program may ask for."""
FETCHED = 17
"""Most files that a program may hand back, and most descriptors in a message of a zygote's."""
FETCH_MB = 16
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC",
               "PYTHONINTMAXSTRDIGITS": str(INT_DIGITS)}  # fmt: skip
"""What a program that is started by exec has, beside HOME and TMPDIR, which are its folder."""
RUNTIME_MB = 1024
RESERVE_MB = 12 * 1024
"""What the stacks of a program's threads may reserve beyond the memory that it may use."""


class Pool(NamedTuple):
    """Processes that may run a program: what was forked by zygotes that are alike."""

    imports: str = ""
    """The modules that their zygote has imported beside the usual, with blanks between them; or
    EXEC's or INTERPRETERS'."""
    seed: int = 0
    """Their PYTHONHASHSEED."""
    writes: bool = False
    """Whether programs and companions may write files, each in a folder of its own."""
    large: bool = False

    @property
    def share(self) -> int:
        """How many times the usual memory and time of all steps their programs have."""
        return LARGE if self.large else 1


EXEC, INTERPRETERS = Pool("exec", writes=True), Pool("interpreter")


class Folder(NamedTuple):
    """The files that a program's folder has beside the program: at first, and in the end."""

    files: Mapping[str, bytes] = {}
    """What lies in it, by paths; the compiler sees it too."""
    fetch: tuple[str, ...] = ()
    """Files to hand back, where the program makes them."""
    fetch_mb: int = FETCH_MB
    """Most MiB of all these; more is its failure."""


EMPTY = Folder()


class Program(NamedTuple):
    """One untrusted program on its way to the supervisor, which forwards its bytes unread.

    A program that stands alone is sent its `payload` and `stdin`, and prints. One with a companion
    gets nothing from us: the companion, a process of its own with more memory and time, gets a
    socket to it, talks with it and reports.
    """

    payload: bytes = b""
    """What it gets: the source of a script, or code for an interpreter."""
    stdin: bytes = b""
    companion: bytes | None = None
    """The companion's job; None for a program that stands alone."""
    keeps_companion: bool = False
    """Whether the job can change nothing in the companion, which may then take another."""
    pool: Pool = Pool()
    time_factor: float = 1.0
    """Multiplies the time limits."""
    steps: int = 1
    """How many steps its companion takes; each has the limit on CPU time to itself."""
    session: int | None = None
    """The number of the program whose process goes on with this one's code, 0 for a new process,
    which is kept; None for a process of its own."""
    wall_seconds: float = 0.0
    """Wall time in place of the limit's, with the time of waiting for a core; 0 for that."""
    executable: str = ""
    """The path of an executable in memory, to run in place of its command's first word."""
    fetch: tuple[str, ...] = ()
    """Files of its folder to hand back, if it makes them."""
    fetch_mb: int = FETCH_MB
    """Most MiB of all these; more is its failure."""
    runtime_mb: int = 0
    """Memory beyond the limit that its runtime takes."""


def command(
    argv: Sequence[str], folder: Folder = EMPTY, stdin: bytes = b"", *,
    starts_processes: bool = False, runtime_mb: int = 0, time_factor: float = 1.0,
    environment: Mapping[str, str] | None = None, reserves: bool = False,
) -> Program:  # fmt: skip
    """A program that is started by exec in this folder, which is new.

    argv: its first word is a path, absolute or in the folder. starts_processes: whether it may
    start others, as compilers do; threads it always may. runtime_mb: memory beyond the limit, up to
    RUNTIME_MB, for what a compiler or a language's runtime takes itself.
    environment: its variables beside the usual ones. reserves: whether it may reserve much more
    memory than it may use.
    """
    extra_mb, variables = min(runtime_mb, RUNTIME_MB), {**ENVIRONMENT, **(environment or {})}
    files, most_mb = [*folder.files.items()], extra_mb + RESERVE_MB * reserves
    payload = message(argv, files, starts_processes, most_mb, variables, reserves)
    return Program(payload, stdin, pool=EXEC, time_factor=time_factor, fetch=folder.fetch,
                   fetch_mb=folder.fetch_mb, runtime_mb=extra_mb)  # fmt: skip


class Ended(StrEnum):
    """How a program ended."""

    EXITED = "exited"
    """By itself, with the exit status."""
    CRASHED = "crashed"
    """By a signal that it caused."""
    RUNNING = "running"
    """It still ran when its companion was done with it, or is kept."""
    CLOSED = "closed"
    """It ran on, but had closed its channel to the companion."""
    CPU = "cpu"
    WALL = "wall"
    MEMORY = "memory"
    PRINTED = "printed"
    """It was stopped at this limit."""
    GAVE_WAY = "gave way"
    """It was stopped for another client's program, and runs anew later: no result says so."""
    ABANDONED = "abandoned"
    """Its companion ended itself before it had reported."""
    KILLED = "killed"
    """By SIGKILL, which nothing in the sandbox can send: the machine did."""
    LOST = "lost"
    """The machine did not start it, or ended it, its companion or its zygote."""


BY_MACHINE = (Ended.KILLED, Ended.LOST)
"""Ends that are the machine's failure."""


class Result(NamedTuple):
    """What came of one program."""

    ended: Ended
    detail: str = ""
    """Why, in one line for people."""
    status: int = 0
    """Its exit status where it exited."""
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    memory_mb: float = 0.0
    """Peak resident memory in MiB."""
    report: bytes = b""
    """What the companion reported, or how the code of a process that is kept ended (repl.py)."""
    stdout: bytes = b""
    """What a program that stands alone wrote to standard output."""
    stderr: bytes = b""
    """The beginning of what it wrote to standard error; with a companion, to both streams."""
    files: Mapping[str, bytes] = {}
    """The files that were to be fetched and that it made."""
    compile_error: str = ""
    """Why its text is no program, where it stands alone and no compiler ran before."""
    start_error: str = ""
    """Why the machine could not start it, in which case it is LOST."""
    session: int = 0
    """The number by which another program goes on in its process; 0 where that has ended."""
    answer_ran: bool = False
    """Whether what it answered may have run as code in its companion."""
    was_asked: bool = False
    """Whether its companion had something of it, which may then have ended the companion."""
    left_out: int = 0
    """Bytes that a command in a box wrote and that are not kept."""
    error: int = 0
    """The number of the error for which a command in a box was not started, or what was asked of
    its files not done; 0 where there was none. No command can write it."""


class SupervisorSettings(NamedTuple):
    """What a supervisor gets in JSON as an argument."""

    limits: dict[str, Any]
    """The fields of Limits."""
    slots: int
    required: list[str]
    """Walls that every zygote must put up."""
    zygote: str
    """The module that a zygote runs: it gets a descriptor and its Pool in JSON as arguments."""
    reads: list[str]
    """Files and folders that programs started by exec may read, beside the usual ones."""
