"""What a hostile candidate process may write, as targets for a fuzzer: each raises where a promise
is broken.
"""

from __future__ import annotations

import array
import contextlib
import datetime
import json
import pathlib
import socket
import struct
import threading
import time
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from assay.judge.answer_code import AnswerCode
from assay.judge.answer_names import AnswerNames
from assay.judge.codec import Unpacker, loads
from assay.judge.codec_types import BUILTINS, CodecError, Opaque
from assay.judge.kinds import asserts
from assay.judge.proxy import Connection
from assay.judge.verdict import FAILURES, parse_report
from assay.judge.worker import run_checks
from assay.judge.worker_messages import CheckJob, WorkerReport
from assay.sandbox.sockets import HEADER, BufferedSocket, FramedSocket, framed

NAMES = AnswerNames(AnswerCode(-1))
SCALARS = (
    type(None), bool, int, float, str, bytes, bytearray, complex, range, Decimal, Fraction,
    type(...),
    type(NotImplemented), array.array, datetime.date, datetime.time, datetime.datetime,
    datetime.timedelta, datetime.timezone, uuid.UUID, pathlib.PosixPath, pathlib.PurePosixPath,
    pathlib.PureWindowsPath, Opaque,
)  # fmt: skip
SEQUENCES: tuple[type, ...] = (
    list,
    time.struct_time,
    tuple,
    set,
    frozenset,
    deque,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
    type(iter([])),
)
MAPPINGS = (dict, Counter, OrderedDict, defaultdict)
CHECKS = (
    "assert f([1], (2, 3)) == object()",
    "try:\n    f()\nexcept BaseException:\n    pass\nassert g({4: 5}) == object()",
)
"""Held by no reply, even where every failure is swallowed: nothing that crosses equals a new
object."""


def value_from(frame: bytes) -> Any:
    """What the reader makes of a frame: a value of allowed types, or None where it is refused as
    documented.
    """
    try:
        value = Unpacker({"opaque": Opaque}).value(loads(frame))
    except CodecError:
        return None
    require_allowed(value)
    return value


def require_allowed(value: Any) -> None:
    """Raises AssertionError where a value, or any part of it, is of a type that may not cross."""
    kind = type(value)
    if kind.__bases__ == (Opaque,):  # a stand-in's class has a name, and nothing else of its own
        assert kind.__dict__.keys() <= {"__module__", "__doc__", "__dict__", "__weakref__"}
        kind = Opaque
    if kind in MAPPINGS:
        if kind is defaultdict:
            require_allowed(value.default_factory)
        for part in dict.items(value):
            require_allowed(part)
    elif kind is slice:
        require_allowed([value.start, value.stop, value.step])
    elif kind in SEQUENCES:
        for part in value:
            require_allowed(part)
    elif kind.__module__ == "numpy":
        assert value.dtype.kind in "biufcSU", value.dtype
    else:
        assert kind in SCALARS or value in BUILTINS.values(), kind


def reported(script: list[bytes], mutates: bool = False, handles: bool = False) -> WorkerReport:
    """A worker's report on a candidate that answers its requests with these bytes, whatever they
    are, then hangs up.
    """
    ours, theirs = socket.socketpair()

    def candidate() -> None:
        with theirs, contextlib.suppress(OSError):  # the worker may hang up first
            written, whole, asked = b"", 0, True
            for part in script:
                if asked and not theirs.recv(65_536):
                    return
                theirs.sendall(part)
                written += part
                before, (whole, rest) = whole, counted(written)
                asked = (
                    whole > before and not rest
                )  # otherwise the worker still waits for the end of a reply

    playing = threading.Thread(target=candidate)
    playing.start()
    job: CheckJob = {
        "program": "", "entry_point": "f", "setup": "", "checker": "", "reference": "",
        "checks": [[asserts.__name__, source] for source in CHECKS],
        "stop_early": False, "numpy": False, "mutates": mutates, "classes": [],
        "identity": False, "files": False, "doubt": "", "objects": handles,
        "requested_names": None, "imports": {},
        "subclasses": False, "aliases": False,
        "large": False, "reply_mb": 1, "kinds": {},
    }  # fmt: skip
    with ours:
        ours.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 20, 0)
        )  # no test without an end
        report = run_checks(Connection(FramedSocket(ours, 1 << 16), job), NAMES)
    playing.join()
    require_documented(report)
    return report


def counted(stream: bytes) -> tuple[int, int]:
    """How many whole frames a stream holds, and how many bytes follow them."""
    count = 0
    while len(stream) >= HEADER.size and len(stream) >= (
        end := HEADER.size + HEADER.unpack_from(stream)[0]
    ):
        count, stream = count + 1, stream[end:]
    return count, len(stream)


def require_documented(report: WorkerReport) -> None:
    """Raises AssertionError where a report would pass, blame the machine, or be no report."""
    assert parse_report(json.dumps(report._asdict()).encode()) == report
    assert not report.setup_error, "a program's reply is no fault of the setup's"
    ends = {check.how for check in report.checks}
    assert ends <= {"wrong", "error"}, "a check held that cannot"
    if report.failure:
        assert report.failure.how == "hung_up" or report.failure.how in FAILURES
    else:
        assert len(report.checks) == len(CHECKS)


def frames_through_a_socket(parts: list[bytes]) -> list[bytes]:
    """The frames that a BufferedSocket makes of a stream that arrives in these parts; then it is
    closed.
    """
    ours, theirs = socket.socketpair()
    buffered, frames = BufferedSocket(ours), []
    with ours:
        for part in parts:
            theirs.sendall(part)
            frames += buffered.receive()
        theirs.close()
        frames += buffered.receive()
        frames += buffered.receive()
    assert not buffered.open
    return frames


def require_same_frames(data: bytes) -> None:
    """Raises AssertionError where a stream's frames depend on how it was cut into parts."""
    whole = frames_through_a_socket([data])
    cuts = [data[at : at + 1 + len(data) % 7] for at in range(0, len(data), 1 + len(data) % 7)]
    assert frames_through_a_socket(cuts) == whole
    assert data.startswith(b"".join(map(framed, whole)))


def scripted(data: bytes) -> list[bytes]:
    """Lines as a candidate's replies: one that begins with `!` as it is, another with its frame and
    number about it.
    """
    return [
        line[1:] if line[:1] == b"!" else framed(b"[%d,%b]" % (number, line))
        for number, line in enumerate(data.split(b"\n"), 1)
    ]


def converse(data: bytes) -> None:
    """Talk to a candidate whose replies the fuzzer wrote, all but the first, which says that it is
    loaded.
    """
    reported(
        scripted(b'"value",true\n' + data), mutates=data[:1] == b" ", handles=data[-1:] == b" "
    )


TARGETS: dict[str, Callable[[bytes], object]] = {
    "codec": value_from,
    "worker": converse,
    "socket": require_same_frames,
}
SEEDS: dict[str, tuple[bytes, ...]] = {
    "codec": (
        b'{"dict":[{"tuple":[1,2.5]},{"set":[216,"a"]}]}',
        b'{"defaultdict":[{"builtin":"int"},{"dict":[1,{"Fraction":[1,2]}]}]}',
        b'{"numpy":["<i8",[2],"0100000000000000ff00000000000000",false]}',
        b'[{"int":"-0xff"},{"float":"nan"},{"bytes":"a"},{"range":[0,9,2]},{"deque":[3,1]},{"date":"2026-01-02"}]',
    ),
    "worker": (
        b'"value",1,[[],[],[]]\n"value",[],[[[0,[2]]],[],[]]\n"function","g"\n"value",{"opaque":["x",true]},[[],[],[]]',
        b' "raised",[[],[],[]],["OSError","Exception"],[2,"x"],"E","x",null,null\n',
        b'"exit","bye"\n!\x00\x00\x00\x02[]',
        b' "value",{"handle":[0,"x"]},[[],[],[]]\n"large","x"\n"memory","" ',
    ),
    "socket": (framed(b"abc") + framed(b"") + b"\xff\xff\xff\xff", framed(b"x" * 300) * 3),
}
