"""The worker's side of an exchange: hands a program its standard streams, reads what it prints, and
checks that.
"""

from __future__ import annotations

import os
from typing import Any

from assay.judge.checkers import CHECKERS, difference
from assay.judge.codec import CodecError, dumps, loads
from assay.judge.protocol import MIB, ClosedError, FramedSocket, OversizedError, UnaskedError
from assay.judge.reuse import CHECKER, defined_check, is_reusable_source

CHUNK = 262_144


class FailedError(Exception):
    """The exchange ended before there was anything to check: how, and the detail."""


def report(job: dict[str, Any], wire: FramedSocket, stdin: int) -> dict[str, Any]:
    """As worker.report, and `output`: what the program printed; `exits`: whether its own end is
    still to be awaited.
    """
    ended: list[list[str]] = []
    broken, output = None, b""
    try:
        output = printed(job, wire, stdin)
        ended.append(checked(job, output.decode("utf-8", "surrogateescape"), stdin))
    except FailedError as failure:
        broken = list(failure.args)
    except MemoryError:
        broken = ["output", "printed more than can be checked"]
    return {
        "checks": ended,
        "broken": broken,
        "setup": "",
        "clean": job["checker"] in CHECKERS or is_reusable_source(job["checker"], CHECKER),
        "exits": broken is None,
        "answers": [],
        "kept": False,
        "output": output[: job["output_kb"] * 1024].decode("utf-8", "replace"),
    }


def printed(job: dict[str, Any], wire: FramedSocket, stdin: int) -> bytes:
    """All that the program prints. Raises FailedError where it does not start, or prints more than
    is allowed.
    """
    reading, writing = os.pipe()
    try:
        try:
            wire.begin(stdin, writing)
        finally:
            os.close(writing)
        wire.send(dumps(job["program"]).encode())
        if problem := loads(wire.receive()):
            raise FailedError("compile", str(problem))
        return bytes(drained(reading, job["printed_mb"] * MIB))
    except ClosedError:
        raise FailedError("gone", "the candidate is gone") from None
    except (OversizedError, UnaskedError, CodecError):
        raise FailedError("forbidden", "a malformed reply") from None
    finally:
        os.close(reading)


def drained(reading: int, limit: int) -> bytearray:
    """What comes until the other end is closed. Raises FailedError for more than `limit` bytes."""
    taken = bytearray()
    while chunk := os.read(reading, CHUNK):
        taken += chunk
        if len(taken) > limit:
            raise FailedError("output", f"printed more than {limit // MIB} MiB")
    return taken


def checked(job: dict[str, Any], output: str, stdin: int) -> list[str]:
    """How the check ended: `held`, or `wrong` with the difference."""
    expected, checker = job["expected"], job["checker"]
    if expected is None:
        return ["held", ""]
    if checker in CHECKERS:
        right = CHECKERS[checker](output, expected)
    else:
        given = os.pread(stdin, os.fstat(stdin).st_size, 0).decode("utf-8", "surrogateescape")
        try:
            right = defined_check(checker, CHECKER)(given, output, expected) is True
        except BaseException as error:  # noqa: BLE001  the data set's code: what it raises says that the output is wrong
            return ["wrong", f"the checker raised {type(error).__name__}: {error}"]
    return ["held", ""] if right else ["wrong", difference(output, expected)]
