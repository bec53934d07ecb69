"""Programs that are started by exec: each in an empty folder, within its limits, and gone with all
that it started.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assay.sandbox.access import INTERPRETER
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.limits import Limits
from assay.sandbox.program import EMPTY, FETCHED, Ended, Folder, Program, Result, command
from assay.sandbox.supervisor_client import Sandbox

WITHOUT = {"A": (), "C": ("namespaces", "user", "group")}
"""Walls that are left out, to run as on a machine of that tier."""
LIMITS = Limits(cpu_seconds=2, wall_seconds=5, memory_mb=256)
needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
needs_node = pytest.mark.skipif(not shutil.which("node"), reason="needs node")
Run = Callable[..., list[Result]]


def walls_of(tier: str) -> tuple[str, ...]:
    """The walls of a machine of that tier. Skips the test where this one has fewer."""
    walls = probe_isolation().walls
    if tier == "A" and "namespaces" not in walls:
        pytest.skip("no namespaces here")
    return tuple(wall for wall in walls if wall not in WITHOUT[tier])


@pytest.fixture(params=WITHOUT)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    walls = walls_of(request.param)

    def run(*programs: Program, limits: Limits = LIMITS) -> list[Result]:
        async def one_by_one() -> list[Result]:
            sandbox = Sandbox("assay.judge.warmup")
            await sandbox.start(limits, 1, walls)
            try:
                return [await sandbox.run(program) for program in programs]
            finally:
                await sandbox.close()

        return asyncio.run(one_by_one())

    yield run
    assert work_folders_left() == []


def work_folders_left() -> list[str]:
    """Work folders whose supervisor has ended; another test may run beside this one."""
    folders = [folder.name for folder in Path("/dev/shm").glob("assay-*-work*")]
    return [one for one in folders if not Path(f"/proc/{one.split('-')[1]}").exists()]


def shell(text: str, folder: Folder = EMPTY, **options: object) -> Program:
    return command(["/bin/sh", "-c", text], folder, **options)  # type: ignore[arg-type]


def compiled(source: str) -> Program:
    argv = ["/usr/bin/gcc", "-O1", "main.c", "-o", "program"]
    return command(argv, Folder({"main.c": source.encode()}, ("program",)), starts_processes=True)


@needs_gcc
def test_a_compiler_makes_a_program_that_reads_and_prints(run: Run) -> None:
    adds = '#include <stdio.h>\nint main() { int a; scanf("%d", &a); printf("%d", a + 1); }'
    (made,) = run(compiled(adds))
    assert (made.ended, made.status) == (Ended.EXITED, 0), made
    (ran,) = run(command(["./program"], Folder(made.files), b"41"))
    assert (ran.ended, ran.status, ran.stdout) == (Ended.EXITED, 0, b"42")


@needs_node
def test_node_reads_and_prints(run: Run) -> None:
    adds = b'console.log(1 + Number(require("fs").readFileSync(0, "utf8")))'
    node = command(["/usr/bin/node", "main.js"], Folder({"main.js": adds}), b"41", runtime_mb=512)
    (ran,) = run(node)
    assert (ran.ended, ran.stdout) == (Ended.EXITED, b"42\n"), ran


STARTS_THREADS = """
import threading
threading.stack_size(32768)
done, started = threading.Event(), 0
try:
    for started in range(1000): threading.Thread(target=done.wait, daemon=True).start()
except RuntimeError:
    pass
print(started, flush=True)
threading.Event().wait(1)
done.set()
"""


def test_programs_of_two_judges_do_not_count_each_others_threads() -> None:
    program = command([INTERPRETER[0], "-c", STARTS_THREADS])

    async def at_once() -> list[Result]:
        sandboxes = [Sandbox("assay.judge.warmup") for _ in range(2)]
        for sandbox in sandboxes:
            await sandbox.start(LIMITS, 1, probe_isolation().walls)
        try:
            return await asyncio.gather(*(sandbox.run(program) for sandbox in sandboxes))
        finally:
            await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))

    assert all(int(result.stdout) > 200 for result in asyncio.run(at_once()))


NO_SPACE = "/bin/true cannot be started: No space left on device"


@pytest.mark.parametrize(("argv", "files", "why"), [
    (["/usr/bin/gone"], {}, "/usr/bin/gone cannot be started: No such file or directory"),
    (["/bin/true"], {f"{number}": b"" for number in range(4500)}, NO_SPACE),
    (["/bin/true"], {f"{number}/a": b"" for number in range(2500)}, NO_SPACE),
    pytest.param(["/bin/true"], {f"{number}": bytes(2**16 + 1) for number in range(4000)}, NO_SPACE,
                 marks=pytest.mark.long),
], ids=["an interpreter that vanished", "many files", "many folders", "a full disk"])  # fmt: skip
def test_a_program_that_cannot_be_started_is_lost(
    run: Run, argv: list[str], files: dict[str, bytes], why: str
) -> None:
    patient = replace(LIMITS, cpu_seconds=30, wall_seconds=60)  # its files are 250 MiB
    lost, after = run(command(argv, Folder(files)), command(["/bin/ls", "-A"]), limits=patient)
    assert (lost.ended, lost.detail, lost.start_error) == (Ended.LOST, why, why)
    assert lost.compile_error == ""
    assert (after.ended, after.stdout) == (Ended.EXITED, b"")


@pytest.mark.parametrize("made", [b"", b"no program", b"\x7fELF" + bytes(99)])
def test_what_a_compiler_made_that_cannot_be_executed_is_the_programs_fault(
    run: Run, made: bytes
) -> None:
    (ran,) = run(command(["./program"], Folder({"program": made})))
    assert (ran.ended, ran.start_error) == (Ended.EXITED, "")
    assert ran.compile_error == "./program cannot be started: Exec format error"


def test_a_folder_is_empty_for_the_next_program(run: Run) -> None:
    leaves = shell("mkdir -p a/b; echo secret > a/b/c; ln -s / root; mkfifo pipe; ls",
                   starts_processes=True)  # fmt: skip
    first, second = run(leaves, command(["/bin/ls", "-A"]))
    assert b"a" in first.stdout
    assert second.stdout == b""


def test_a_folder_is_emptied_whatever_modes_hide_in_it(run: Run) -> None:
    hides = shell("mkdir a; echo secret > a/b; umask 477; mkdir c; : > c/d; echo on",
                  starts_processes=True)  # fmt: skip
    first, second = run(hides, command(["/bin/ls", "-A"]))
    assert first.stdout == b"on\n"
    assert (second.ended, second.stdout) == (Ended.EXITED, b"")


@needs_gcc
def test_a_folder_whose_own_mode_a_program_changed_is_emptied(run: Run) -> None:
    source = """#include <fcntl.h>
    #include <sys/stat.h>
    int main() {
        mkdir("a", 0700); creat("a/b", 0600);
        return fchmod(open("a", O_RDONLY), 0) | fchmod(open(".", O_RDONLY), 0);
    }"""
    (made,) = run(compiled(source))
    hides = command(["./program"], Folder(made.files))
    first, second = run(hides, command(["/bin/ls", "-A"]))
    assert (first.ended, first.status) == (Ended.EXITED, 0)
    assert (second.ended, second.stdout) == (Ended.EXITED, b"")


def test_files_are_handed_back_but_no_links_and_no_pipes(run: Run) -> None:
    fetched = Folder(fetch=("file", "link", "folder", "nothing"))
    making = "echo made > file; ln -s file link; mkdir folder"
    (ran,) = run(shell(making, fetched, starts_processes=True))
    assert ran.files == {"file": b"made\n"}


def test_as_many_files_are_handed_back_as_may_be(run: Run) -> None:
    names = [str(number) for number in range(FETCHED)]
    making = f"for each in {' '.join(names)}; do echo $each > $each; done"
    deep = shell("true", Folder(fetch=tuple(f"{name}/{'x' * 255}" for name in names)))
    flat = shell(making, Folder(fetch=tuple(names)), starts_processes=True)
    none, every, last = run(deep, flat, shell("echo on"))
    assert (none.ended, none.files, last.stdout) == (Ended.EXITED, {}, b"on\n")
    assert every.files == {name: f"{name}\n".encode() for name in names}


def test_files_that_are_too_large_together_fail_the_program_and_are_not_read(run: Run) -> None:
    fetched = Folder(fetch=("a", "b"))
    half = shell("truncate -s 9M a; truncate -s 9M b", fetched, starts_processes=True)
    whole, more = run(half._replace(fetch_mb=18), half)
    assert (whole.ended, list(map(len, whole.files.values()))) == (Ended.EXITED, [9 << 20] * 2)
    assert (more.ended, more.detail) == (Ended.PRINTED, "wrote more than 16 MiB into 'b'")
    assert list(more.files) == ["a"]


def test_a_program_starts_no_process_and_a_compiler_leaves_none(run: Run) -> None:
    refused, stays, after = run(
        shell("/bin/true & wait; echo on"), shell("sleep 60 & echo on", starts_processes=True),
        shell("echo /proc/[0-9]*", starts_processes=True),
    )  # fmt: skip
    assert b"Cannot fork" in refused.stderr
    assert stays.stdout == b"on\n"
    assert stays.wall_seconds < 2
    assert after.stdout == b"/proc/[0-9]*\n", "/proc cannot be listed"


def test_time_and_output_are_bounded(run: Run) -> None:
    busy, sleeps, prints = run(
        shell("while :; do :; done"), command(["/bin/sleep", "60"]),
        command(["/usr/bin/yes"]), limits=Limits(cpu_seconds=0.3, wall_seconds=1),
    )  # fmt: skip
    assert (busy.ended, sleeps.ended, prints.ended) == (Ended.CPU, Ended.WALL, Ended.PRINTED)


def test_a_program_that_fills_its_folder_fills_nothing_else(run: Run) -> None:
    fills = shell("while :; do head -c 60000000 /dev/zero > f$((n = n + 1)) || exit 9; done",
                  starts_processes=True)  # fmt: skip
    many = shell("while :; do : > f$((n = n + 1)) || exit 9; done")
    limits = Limits(cpu_seconds=4, wall_seconds=10)
    for ran in run(fills, many, limits=limits):
        assert ran.ended is Ended.MEMORY or ran.status != 0, ran
