"""The filters as programs, run by an interpreter of the few instructions they use: the same on both
architectures.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from assay.sandbox import seccomp
from assay.sandbox.seccomp import (
    ARCHITECTURES,
    CLONE,
    CLONE3,
    FCNTL,
    IOCTL,
    MMAP,
    OWN_PID,
    PRCTL,
    PRLIMIT,
    SETRLIMIT,
    TGKILL,
)

ALLOWED, DONE, REFUSED = 0x7FFF0000, 0x50000, 0x50001
UNKNOWN, KILLED = 0x50026, 0x80000000
PID = 4321


def answered(program: list[seccomp.Instruction], arch: int, number: int, *arguments: int) -> int:
    """What the kernel would answer: classic BPF over `struct seccomp_data`."""
    data = struct.pack("=IIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, value = program[at]
        value = PID if value == OWN_PID else value
        at += 1
        match code:
            case 0x20:
                accumulator = int(struct.unpack_from("=I", data, value)[0])
            case 0x54:
                accumulator &= value
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x25:
                at += if_true if accumulator > value else if_false
            case 0x45:
                at += if_true if accumulator & value else if_false
            case 0x06:
                return value
            case _:
                raise AssertionError(f"instruction {code:#x}")


@pytest.fixture(params=sorted(ARCHITECTURES))
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The audit number of an architecture, and its column in the tables."""
    found: tuple[int, int] = ARCHITECTURES[request.param]
    monkeypatch.setattr(seccomp, "column", lambda: found)
    return found


def test_a_family_is_refused_every_call_of_the_table(machine: tuple[int, int]) -> None:
    arch, at = machine
    program = seccomp.family_filter()
    numbers = [both[at] for both in seccomp.NUMBERS.values() if both[at] >= 0]
    assert {answered(program, arch, number) for number in numbers} == {REFUSED}
    assert answered(program, arch, seccomp.NEWEST_KNOWN + 1) == UNKNOWN
    assert answered(program, arch ^ 1, 0) == KILLED


READ, WRITE, EXIT_GROUP, BRK, FUTEX = (0, 63), (1, 64), (231, 94), (12, 214), (202, 98)


@pytest.mark.parametrize(
    ("call", "arguments", "answer"),
    [
        *((call, (), ALLOWED) for call in (READ, WRITE, EXIT_GROUP, BRK, FUTEX, CLONE, CLONE3)),
        (MMAP, (0, 4096, 3, 0x22), ALLOWED),
        (MMAP, (0, 4096, 1, 0x02), ALLOWED),
        (MMAP, (0, 4096, 1, 0x01), ALLOWED),
        (MMAP, (0, 4096, 3, 0x21), REFUSED),
        (MMAP, (0, 4096, 3, 0x122), REFUSED),
        (PRLIMIT, (0, 7), ALLOWED),
        (PRLIMIT, (PID, 7), REFUSED),
        (FCNTL, (3, 1), ALLOWED),
        (FCNTL, (3, 6), REFUSED),
        (FCNTL, (3, 1036), REFUSED),
        (seccomp.FCHMOD, (3, 0o100644), DONE),
        (seccomp.FCHMOD, (3, 0o104644), REFUSED),
        (seccomp.UTIMENSAT, (3, 0), DONE),
        (seccomp.UTIMENSAT, (3, 1), REFUSED),
        (IOCTL, (0, 0x5401), ALLOWED),
        (IOCTL, (0, 0x5412), REFUSED),
        (seccomp.SOCKETPAIR, (1, 1), ALLOWED),
        (seccomp.SOCKETPAIR, (1, 0o2004001), ALLOWED),
        (seccomp.SOCKETPAIR, (1, 2), REFUSED),
        (seccomp.SOCKETPAIR, (1, 0o2000005), REFUSED),
    ],
)
def test_a_family_is_refused_some_arguments(
    machine: tuple[int, int], call: tuple[int, int], arguments: tuple[int, ...], answer: int
) -> None:
    arch, at = machine
    assert answered(seccomp.family_filter(), arch, call[at], *arguments) == answer


def test_modes_of_open_files_change_where_they_are_ones_own(machine: tuple[int, int]) -> None:
    arch, at = machine
    own = seccomp.family_filter(modes=True)
    assert answered(own, arch, seccomp.FCHMOD[at], 3, 0o100644) == ALLOWED
    assert answered(own, arch, seccomp.FCHMOD[at], 3, 0o104644) == REFUSED


@pytest.mark.parametrize("starts", [False, True])
def test_no_process_changes_modes_by_paths(machine: tuple[int, int], starts: bool) -> None:
    arch, at = machine
    program = seccomp.process_filter(starts)
    calls = [seccomp.PROCESS_NUMBERS[name][at] for name in ("chmod", "fchmodat", "fchmodat2")]
    assert {answered(program, arch, call) for call in calls if call >= 0} == {REFUSED}


@pytest.mark.parametrize(
    ("call", "arguments", "answer"),
    [
        *((call, (), ALLOWED) for call in (READ, WRITE, EXIT_GROUP, BRK, FUTEX)),
        (CLONE, (0x3D0F00,), ALLOWED),
        (CLONE, (0x1200011,), REFUSED),
        (CLONE3, (), UNKNOWN),
        (PRCTL, (15,), ALLOWED),
        (PRCTL, (1,), REFUSED),
        (SETRLIMIT, (7, 1), ALLOWED),
        (SETRLIMIT, (0, 1), REFUSED),
        (PRLIMIT, (0, 7, 1), ALLOWED),
        (PRLIMIT, (0, 0, 0, 1), ALLOWED),
        (PRLIMIT, (0, 0, 1), REFUSED),
        (PRLIMIT, (0, 0, 1 << 32), REFUSED),
        (TGKILL, (PID, PID, 10), ALLOWED),
        (TGKILL, (PID, PID, 9), REFUSED),
        (TGKILL, (PID + 1, PID + 1, 10), REFUSED),
    ],
)
def test_a_leaf_has_threads_and_no_processes(
    machine: tuple[int, int], call: tuple[int, int], arguments: tuple[int, ...], answer: int
) -> None:
    arch, at = machine
    assert answered(seccomp.process_filter(), arch, call[at], *arguments) == answer


def test_a_leaf_is_refused_every_call_of_its_table(machine: tuple[int, int]) -> None:
    arch, at = machine
    numbers = [both[at] for both in seccomp.PROCESS_NUMBERS.values() if both[at] >= 0]
    assert {answered(seccomp.process_filter(), arch, number) for number in numbers} == {REFUSED}


HEADERS = ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm-generic/unistd.h")
"""Of Linux's own tables, the second is that of aarch64."""


@pytest.mark.parametrize("at", [0, 1], ids=["x86_64", "aarch64"])
def test_the_numbers_are_linuxs_own(at: int) -> None:
    header = Path(HEADERS[at])
    if not header.exists():
        pytest.skip(f"{header} is not installed (linux-libc-dev)")
    listed = {
        name: int(number)
        for name, number in re.findall(r"__NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    }
    ours = (
        seccomp.NUMBERS
        | seccomp.PROCESS_NUMBERS
        | {"clone": CLONE, "clone3": CLONE3, "prctl": PRCTL}
    )
    ours |= {"tgkill": TGKILL, "prlimit64": PRLIMIT, "mmap": MMAP, "fcntl": FCNTL, "ioctl": IOCTL}
    ours |= {"fchmod": seccomp.FCHMOD, "utimensat": seccomp.UTIMENSAT}
    ours |= {"socketpair": seccomp.SOCKETPAIR, "setrlimit": SETRLIMIT}
    newer = {name for name, both in ours.items() if both[at] > max(listed.values())}
    assert {
        name: both[at] for name, both in ours.items() if both[at] >= 0 and name not in newer
    } == {name: listed[name] for name, both in ours.items() if both[at] >= 0 and name not in newer}
    assert not {name for name, both in ours.items() if both[at] < 0} & listed.keys()


@pytest.mark.parametrize(("pid", "answer"), [(0, ALLOWED), (PID, ALLOWED), (1, REFUSED)])
def test_nobody_sets_limits_of_the_first_process_of_a_box(
    machine: tuple[int, int], pid: int, answer: int
) -> None:
    arch, at = machine
    for program in (seccomp.repository_filter(), seccomp.repository_filter(counted=False)):
        assert answered(program, arch, PRLIMIT[at], pid, 7, 1) == answer


def test_files_without_names_are_refused_where_nobody_counts_them(
    machine: tuple[int, int],
) -> None:
    arch, at = machine
    number = seccomp.NUMBERS["memfd_create"][at]
    answers = [answered(seccomp.repository_filter(counted), arch, number)
               for counted in (True, False)]  # fmt: skip
    assert answers == [ALLOWED, REFUSED]


@pytest.mark.parametrize(
    ("level", "option", "answer"),
    [(1, 7, DONE), (1, 8, DONE), (1, 2, ALLOWED), (6, 7, ALLOWED), (0, 8, ALLOWED)],
)
def test_buffers_of_sockets_keep_their_size_where_nobody_counts_them(
    machine: tuple[int, int], level: int, option: int, answer: int
) -> None:
    arch, at = machine
    call = seccomp.SETSOCKOPT[at]
    assert answered(seccomp.repository_filter(False), arch, call, 3, level, option) == answer
    assert answered(seccomp.repository_filter(), arch, call, 3, level, option) == ALLOWED


@pytest.mark.parametrize(("abi", "answer"), [(6, ALLOWED), (5, REFUSED), (0, REFUSED)])
def test_what_starts_processes_sends_no_signal_that_landlock_does_not_keep_inside(
    machine: tuple[int, int], monkeypatch: pytest.MonkeyPatch, abi: int, answer: int
) -> None:
    arch, at = machine
    monkeypatch.setattr("assay.sandbox.landlock.abi", lambda: abi)
    assert answered(seccomp.process_filter(True), arch, TGKILL[at], PID, PID, 9) == answer
    assert answered(seccomp.process_filter(), arch, TGKILL[at], PID, PID, 15) == ALLOWED
