"""What the sandbox runs, and what came of it: the data between the trainer and the supervisor."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from enum import StrEnum
from io import BytesIO
from typing import Any, NamedTuple

from assay.sandbox.limits import LARGE

INTERPRETER = "interpreter"
EXEC = "exec"
MATHS = "maths_0"
FILES = "files"
"""The kind whose programs and companions may write files, each in a folder of its own."""
HASH_SEEDS = 5
"""Values of PYTHONHASHSEED that a program may ask for."""
ZYGOTES = (
    INTERPRETER,
    EXEC,
    MATHS,
    *(
        f"{kind}_{seed}"
        for kind in ("plain", "numpy", "large", FILES)
        for seed in range(HASH_SEEDS)
    ),
)
"""Kinds of zygote that a program may ask for, with the hash seed where there is one for each."""
FETCHED = 17
"""Most files that a program may hand back."""
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC"}
"""What a program that is started by exec has, beside HOME and TMPDIR, which are its folder."""
RUNTIME_MB = 1024
SESSION = struct.Struct("!I")
"""Starts the payload of code for an interpreter: the number of the program that opened it, 0 for a
new one."""


def share_of(kind: str) -> int:
    """How many times the usual memory and time of all steps programs of a kind have."""
    return LARGE if kind.startswith("large") else 1


def message(*parts: object, blob: bytes = b"") -> bytes:
    """A frame from the supervisor: a line of JSON, then any bytes."""
    return json.dumps(parts).encode() + b"\n" + blob


def read_message(frame: bytes) -> tuple[list[Any], bytes]:
    """The parts of a frame made by `message`."""
    line, _, blob = frame.partition(b"\n")
    return json.loads(line), blob


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
    zygote: str = "plain_0"
    time_factor: float = 1.0
    """Multiplies the time limits."""
    steps: int = 1
    """How many steps its companion takes; each has the limit on CPU time to itself."""
    wall_seconds: float = 0.0
    """Wall time in place of the limit's, with the time of waiting for a core; 0 for that."""
    executable: str = ""
    """The path of an executable in memory, to run in place of its command's first word."""
    fetch_mb: int = 16
    """Most MiB of all files that it hands back; more is its failure."""
    fetch: tuple[str, ...] = ()
    """Files of its folder to hand back, if it makes them."""

    def pack(self) -> bytes:
        """The program as a frame."""
        size = None if self.companion is None else len(self.companion)
        blob = b"".join((self.payload, self.stdin, self.companion or b""))
        return message(len(self.payload), len(self.stdin), size, *self[3:], blob=blob)


def unpack_program(frame: bytes) -> Program:
    """The program of a frame made by `Program.pack`."""
    (payload, stdin, companion, *fields, fetch), blob = read_message(frame)
    data = BytesIO(blob)
    cuts = data.read(payload), data.read(stdin), None if companion is None else data.read()
    return Program._make([*cuts, *fields, tuple(fetch)])


def command(
    argv: Sequence[str], files: Mapping[str, bytes], stdin: bytes = b"", *,
    starts_processes: bool = False, fetch: Sequence[str] = (), runtime_mb: int = 0,
    time_factor: float = 1.0, environment: Mapping[str, str] | None = None,
) -> Program:  # fmt: skip
    """A program that is started by exec in a folder of its own, which holds `files` at first.

    argv: its first word is a path, absolute or in the folder. starts_processes: whether it may
    start others, as compilers do; threads it always may. runtime_mb: memory beyond the limit, up to
    RUNTIME_MB, for what a compiler or a language's runtime takes itself.
    environment: its variables beside the usual ones.
    """
    sizes = [(name, len(data)) for name, data in files.items()]
    kept = min(runtime_mb, RUNTIME_MB)
    blob = b"".join(files.values())
    surroundings = {**ENVIRONMENT, **(environment or {})}
    payload = message(argv, sizes, starts_processes, kept, surroundings, blob=blob)
    return Program(payload, stdin, zygote=EXEC, time_factor=time_factor, fetch=tuple(fetch))


class Ended(StrEnum):
    """How a program ended."""

    EXITED = "exited"
    """By itself, with the exit status."""
    CRASHED = "crashed"
    """By a signal that it caused."""
    RUNNING = "running"
    """It still ran when its companion was done with it."""
    CLOSED = "closed"
    """It ran on, but had closed its channel to the companion."""
    CPU = "cpu"
    WALL = "wall"
    MEMORY = "memory"
    PRINTED = "printed"
    """It was stopped at this limit."""
    LOST = "lost"
    """The machine did not start it, or ended it, its companion or its zygote."""


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
    """What the companion reported."""
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

    def pack(self) -> tuple[list[Any], bytes]:
        """The result as JSON, and the bytes to send after it."""
        blobs = (self.report, self.stdout, self.stderr, *self.files.values())
        said = self.compile_error, self.start_error
        return [self[:6], list(self.files), list(map(len, blobs)), said], b"".join(blobs)


def unpack_result(fields: list[Any], blob: bytes) -> Result:
    """The result that was packed so."""
    (ended, *used), names, sizes, said = fields
    parts = list(map(BytesIO(blob).read, sizes))
    files = dict(zip(names, parts[3:], strict=True))
    return Result._make([Ended(ended), *used, *parts[:3], files, *said])


class BlockResult(NamedTuple):
    """What the supervisor answers to a block of code for an interpreter."""

    ended: str
    """`done`, `error`, `timeout`, `memory`, `output`, `died` or `infra`."""
    output: str
    detail: str
    """Why the interpreter ended, in one line; empty where it goes on."""


class SupervisorSettings(NamedTuple):
    """The first frame to a supervisor."""

    limits: dict[str, Any]
    """The fields of Limits."""
    slots: int
    required: list[str]
    """Walls that every zygote must put up."""
    zygote: str
    """The module that a zygote runs: it gets a descriptor and its kind as arguments."""
    reads: list[str]
    """Files and folders that programs started by exec may read, beside the usual ones."""
