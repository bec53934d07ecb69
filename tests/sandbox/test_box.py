"""Boxes: what works in them, what they refuse, and that nothing is left of them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from assay.errors import SandboxError
from assay.sandbox.box import FORMS, Box
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.boxes import Boxes, describe_boxes
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.program import ENVIRONMENT, Ended
from assay.sandbox.users import claim_user
from tests.judge.processes import descendants

WALLS = probe_isolation().walls
TIERS: dict[str, AbstractSet[str]] = {"A": set(), "C": {"namespaces", "user"}}
"""Walls that are left out, to run as on a machine of that tier."""
needs_namespaces = pytest.mark.skipif("namespaces" not in WALLS, reason="no namespaces here")
OTHERS: set[Path] = set()
"""Control groups that tests of other files had left before those of this one."""


@pytest.fixture(scope="module", autouse=True)
def others() -> None:
    OTHERS.update(groups_of_boxes())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "src").mkdir(parents=True)
    (tree / "a.txt").write_text("one\ntwo\n")
    (tree / "src" / "b.py").write_text("x = 1\n")
    return tree


@asynccontextmanager
async def opened(
    tree: Path, without: AbstractSet[str] = frozenset(), **fields: Any
) -> AsyncIterator[Box]:
    boxes = Boxes([wall for wall in WALLS if wall not in without])
    try:
        async with boxes.open(BoxSpec(tree, **fields)) as box:
            yield box
    finally:
        await boxes.close()


def in_box(
    tree: Path, work: Callable[[Box], Awaitable[None]], without: AbstractSet[str] = frozenset(),
    **fields: Any,
) -> None:  # fmt: skip
    async def run() -> None:
        async with opened(tree, without, **fields) as box:
            await work(box)

    asyncio.run(run())


async def shell(box: Box, text: str, **options: Any) -> str:
    """What a command prints, which must exit with status 0."""
    done = await box.run(("bash", "-c", text), merged=True, **options)
    assert (done.ended, done.status) == (Ended.EXITED, 0), done.stdout.decode()
    return done.stdout.decode()


WORKS = {
    "files in /tmp": "echo x > /tmp/x && python3 -c 'import tempfile as t; t.mkdtemp()'",
    "shared memory": "python3 -c 'from multiprocessing.shared_memory import SharedMemory as S;"
    " s = S(create=True, size=9); s.close(); s.unlink()'",
    "users": "id -un | grep user && python3 -c 'import pwd, os; pwd.getpwuid(os.getuid())'",
    "loopback": 'python3 -c \'import socket as s; a = s.create_server(("localhost", 0));'
    " s.create_connection(a.getsockname())'",
    "named sockets": "python3 -c 'import socket as s; a = s.socket(s.AF_UNIX); a.bind(\"s\")'",
    "asyncio's subprocesses": "python3 -c 'import asyncio as a;"
    ' a.run(a.create_subprocess_exec("true"))\'',
    "rights": "chmod 755 a.txt && test -x a.txt",
    "locks": 'flock a.txt true && python3 -c \'import fcntl; fcntl.lockf(open("a.txt", "a"), 2)\'',
    "signals": "sleep 9 & kill %1; wait; python3 -c 'import os; os.killpg(os.getpgrp(), 0)'",
    "sessions": "setsid true",
    "pools of processes": "python3 -c 'import multiprocessing as m; m.Pool(2).map(abs, [1])'",
    "terminals": "python3 -c 'import pty; pty.spawn([\"true\"])'",
    "git": "git init -q && git add -A && git commit -qm x && git log --oneline | grep x",
    "database": 'python3 -c \'import sqlite3; sqlite3.connect("db").execute("create table t(a)")\'',
    "times": "touch -d @0 a.txt && test $(stat -c %Y a.txt) = 0",
    "threads": "python3 -c 'import threading as t; [t.Thread(target=id, args=(1,)).start()"
    " for _ in range(50)]'",
    "the tree": "echo 3 >> a.txt && rm src/b.py && mkdir -p d/e && mv a.txt d/e && cat d/e/*",
}


@needs_namespaces
@pytest.mark.parametrize("what", WORKS)
def test_what_tests_of_repositories_need_works_in_a_box(what: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        await shell(box, WORKS[what])

    in_box(tree, work)
    assert (tree / "a.txt").read_text() == "one\ntwo\n", "the trusted copy stays as it was"


REFUSED = {
    "the network": "python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 2)'",
    "files of the machine": "cat /root/.bashrc /etc/shadow /proc/1/environ",
    "other namespaces": "unshare -U true",
    "mounts": "mount -t tmpfs none /tmp",
    "tools of the machine": "touch /usr/bin/x",
    "the root folder": "touch /x",
    "its trusted copy": "touch /.tree/a.txt",
    "tracing": "python3 -c 'import ctypes, sys;"
    " sys.exit(ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0 or 1)'",
    "the kernel's settings": "echo x > /proc/sys/kernel/core_pattern",
    "raw packets": "python3 -c 'import socket; socket.socket(socket.AF_PACKET)'",
    "the box's first process": "kill -9 1 && sleep 0.2 && false",
}


@needs_namespaces
@pytest.mark.parametrize("what", REFUSED)
def test_a_box_refuses_what_reaches_out_of_it(what: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        done = await box.run(("bash", "-c", REFUSED[what]), merged=True)
        assert done.status != 0, done.stdout.decode()
        assert "still there" in await shell(box, "echo still there")

    in_box(tree, work)


WITH_FIRST = (
    'python3 -c \'import ctypes, os, resource as r, signal; first = int(os.environ["FIRST"]);'
    " call = ctypes.CDLL(None).syscall; {}'"
)
ENDING = {
    "an interrupt": "kill -INT $FIRST",
    "every signal": "for n in {1..64}; do kill -$n $FIRST; done",
    "a signal to a thread": WITH_FIRST.format("[call(234, first, first, n) for n in range(1, 65)]"),
    "a signal with a value": WITH_FIRST.format(
        "[call(129, first, n, bytes((n, *7 * [0], *4 * [255], *116 * [0]))) for n in range(1, 65)]"
    ),
    "a signal by descriptor": WITH_FIRST.format(
        "it = os.pidfd_open(first); [signal.pidfd_send_signal(it, n) for n in (2, 15, 20, 19, 9)]"
    ),
    "a signal to all": "trap : INT HUP; kill -INT -1; kill -HUP 0",
    "a signal to its group": WITH_FIRST.format("os.killpg(os.getpgid(first), 2)"),
    "its limits": WITH_FIRST.format(
        "[call(302, first, limit, bytes(16), 0) for limit in (r.RLIMIT_CPU, r.RLIMIT_AS,"
        " r.RLIMIT_NOFILE, r.RLIMIT_FSIZE)]"
    ),
    "its priority": "renice 19 $FIRST; renice 19 -u $(id -u)",
    "its score": "echo 0 > /proc/self/oom_score_adj; echo 1000 > /proc/$FIRST/oom_score_adj",
}
"""By which a command may try to end or to slow the first process of its box."""


async def try_to_end(box: Box) -> None:
    """Try each way, of which none may keep the box from going on."""
    for what, text in ENDING.items():
        done = await box.run(("bash", "-c", f"export FIRST=$PPID; ({text}); echo on"), merged=True)
        assert done.ended in (Ended.EXITED, Ended.CRASHED), (what, done)
        busy = await box.run(("bash", "-c", "for n in {1..9999}; do :; done; echo on"))
        assert busy.stdout == b"on\n", (what, done, busy)


@pytest.mark.parametrize("tier", TIERS)
def test_no_command_ends_its_box(tier: str, tree: Path) -> None:
    in_box(tree, try_to_end, TIERS[tier])


HOLDS = "(yes | head -c 60000000; sleep 9) | tail -c 60000000 > /dev/null"
TOGETHER = {
    "processes": f"for n in {{1..9}}; do {HOLDS} & done; wait",
    "children of others": f"f() {{ {HOLDS} & (($1)) && (f $(($1 - 1))) & wait; }}; f 9",
    "orphans": f"for n in {{1..9}}; do ({HOLDS} &) ; done; sleep 9",
    "two dozen at once": "python3 -c 'import os, time\n"
    "for n in range(24):\n"
    '  if not os.fork(): kept = b"1" * (60 << 20); time.sleep(9)\n'
    "time.sleep(9)'",
    "children of a thread": "python3 -c 'import os, threading, time\n"
    "def fork():\n"
    "  for n in range(9):\n"
    '    if not os.fork(): kept = b"1" * (60 << 20); time.sleep(9)\n'
    "  time.sleep(9)\n"
    "threading.Thread(target=fork).start()\ntime.sleep(9)'",
}
SHARED = {
    "shared memory": "python3 -c 'import mmap, time; kept = [mmap.mmap(-1, 60 << 20) for n in"
    " range(9)]; [each.write(b\"1\" * (60 << 20)) for each in kept]; time.sleep(9)'",
    "segments that nobody maps": "python3 -c 'import ctypes, time\n"
    "libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p\n"
    "for n in range(9):\n"
    "  at = libc.shmat(libc.shmget(0, 60 << 20, 0o1600), None, 0)\n"
    "  ctypes.memset(at, 1, 60 << 20); libc.shmdt(ctypes.c_void_p(at))\n"
    "time.sleep(9)'",
    "sockets": "python3 -c 'import socket, time\nkept = []\n"
    "for n in range(500):\n"
    "  kept += socket.socketpair(); kept[-1].setblocking(False)\n"
    "  try:\n    while True: kept[-1].send(bytes(4096))\n"
    "  except BlockingIOError: pass\n"
    "time.sleep(9)' & " * 2 + "wait",
    "connections": "python3 -c 'import socket, time\nserver = socket.create_server((\"\", 0))\n"
    "kept = []\nfor n in range(600):\n"
    "  kept += socket.create_connection(server.getsockname()), server.accept()[0]\n"
    "  kept[-1].setblocking(False)\n"
    "  try:\n    while True: kept[-1].send(bytes(65536))\n"
    "  except BlockingIOError: pass\n"
    "time.sleep(9)'",
    "closed connections": "python3 -c 'import socket, time\n"
    "server = socket.create_server((\"\", 0))\n"
    "kept = []\nfor n in range(600):\n"
    "  kept.append(socket.create_connection(server.getsockname())); it, _ = server.accept()\n"
    "  it.setblocking(False)\n"
    "  try:\n    while True: it.send(bytes(65536))\n"
    "  except BlockingIOError: it.close()\n"
    "time.sleep(9)'",
}  # fmt: skip
"""What commands of a box may take together, each process no more than it may: more than a GiB."""


async def take_together(box: Box, text: str) -> None:
    done = await box.run(("bash", "-c", text), wall_seconds=8, merged=True)
    assert done.ended is Ended.MEMORY, done
    assert await shell(box, "sleep 0.1; echo on") == "on\n", "nothing of it is left"


SMALL: dict[str, Any] = {"memory_mb": 128, "size_mb": 64, "files": 1000}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("how", ["processes", *(
    pytest.param(how, marks=pytest.mark.long) for how in TOGETHER if how != "processes"
)])  # fmt: skip
def test_the_processes_of_a_box_have_their_memory_together(how: str, tier: str, tree: Path) -> None:
    without = {*TIERS[tier], "group"}
    in_box(tree, lambda box: take_together(box, TOGETHER[how]), without, **SMALL)


@needs_namespaces
@pytest.mark.parametrize("how", SHARED)
def test_what_processes_of_a_box_share_is_their_memory(how: str, tree: Path) -> None:
    in_box(tree, lambda box: take_together(box, SHARED[how]), {"group"}, **SMALL)


@needs_namespaces
@pytest.mark.parametrize("without", [set(), {"group"}], ids=["with", "without"])
def test_files_that_nobody_sees_need_a_control_group(without: set[str], tree: Path) -> None:
    async def work(box: Box) -> None:
        done = await box.run(("python3", "-c", "import os; os.memfd_create('hidden')"))
        is_counted = "group" in {*WALLS} - without
        assert (done.status == 0) is is_counted, done.stderr.decode()

    in_box(tree, work, without)


FILLS = {
    "files": "for n in {1..9}; do yes | head -c 30000000 > f$n; done; sleep 9",
    "folders": "mkdir {1..2000}; sleep 9",
    "a hidden folder": "mkdir -m 300 f; for n in {1..9}; do yes | head -c 30000000 > f/$n; done;"
    " sleep 9",
    "removed files": "python3 -c 'import os, time\nkept = []\nfor n in range(9):\n"
    '  kept.append(open("f", "wb", 0)); kept[-1].write(bytes(30000000)); os.unlink("f")\n'
    "time.sleep(9)'",
    "files for temporary use": "for n in {1..9}; do yes | head -c 30000000 > $TMPDIR/$n; done;"
    " sleep 9",
}


@pytest.mark.parametrize("how", FILLS)
def test_a_box_without_namespaces_holds_no_more_files_than_it_may(how: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        done = await box.run(("bash", "-c", FILLS[how]), wall_seconds=8, merged=True)
        assert (done.ended, done.detail) == (Ended.MEMORY, "filled its folder"), done

    in_box(tree, work, TIERS["C"], **SMALL)


def test_a_large_tree_fills_no_box(tree: Path) -> None:
    (tree / "large").write_bytes(bytes(100 << 20))

    async def work(box: Box) -> None:
        with tempfile.TemporaryFile(dir="/dev/shm") as others:
            others.write(bytes(60 << 20))  # so that the folder itself is looked at
            assert await shell(box, "yes | head -c 20000000 > more; sleep 0.1; echo on") == "on\n"

    in_box(tree, work, TIERS["C"], **SMALL)


BOMBS = {
    "processes": "for n in {1..300}; do sleep 9 & done; wait",
    "orphans": "for n in {1..300}; do (sleep 9 &) ; done; sleep 9",
    "forks that fork": ":(){ :|:& };:; sleep 9",
    "threads": "python3 -c 'import threading, time; [threading.Thread(target=time.sleep,"
    " args=(9,)).start() for n in range(300)]'",
}


@pytest.mark.parametrize("how", BOMBS)
def test_a_box_without_namespaces_has_no_more_processes_than_it_may(how: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        done = await box.run(("bash", "-c", BOMBS[how]), wall_seconds=8, merged=True)
        assert (done.ended, done.detail) == (
            Ended.CRASHED, "had more than 64 processes and threads",
        ), done  # fmt: skip
        assert await shell(box, "echo on") == "on\n"

    in_box(tree, work, {*TIERS["C"], "group"}, processes=64)


@pytest.mark.parametrize("tier", TIERS)
def test_orphans_that_have_ended_are_no_processes_of_a_box(tier: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        orphans = "for n in {1..9}; do for m in {1..30}; do (true &); done; sleep 0.3; done"
        assert await shell(box, f"{orphans}; echo on", wall_seconds=60) == "on\n"
        burns = "python3 -c 'import time\nwhile time.process_time() < 0.3: pass'"
        done = await box.run(("bash", "-c", f"({burns} &) | cat; sleep 0.3"), wall_seconds=60)
        assert (done.status, done.cpu_seconds > 0.3) == (0, True)

    in_box(tree, work, TIERS[tier], processes=64)


ALIKE = {
    "forks": 'python3 -c \'import os, time; kept = b"1" * (60 << 20);'
    " [os.fork() for n in range(4)]; time.sleep(0.3)'",
    "processes of one memory, as between vfork and exec": "python3 -c 'import ctypes, time\n"
    'kept = b"1" * (100 << 20); libc, at = ctypes.CDLL(None), ctypes.c_void_p\n'
    "stacks = [ctypes.create_string_buffer(65536) for n in range(4)]\n"
    "for stack in stacks:\n"
    "  top = at((ctypes.addressof(stack) + 65000) & ~15)\n"
    "  assert libc.clone(ctypes.cast(libc.sleep, at), top, 0x100 | 17, at(1)) > 0\n"
    "time.sleep(0.5)'",
    "files that many map": "head -c 40000000 /dev/zero > big; for n in {1..9}; do python3 -c"
    ' \'import mmap, time; kept = mmap.mmap(open("big", "r+").fileno(), 0); kept.write('
    'b"1" * 40000000); time.sleep(0.3)\' & done; wait; rm big',
}


@pytest.mark.parametrize("tier", TIERS)
def test_what_processes_of_a_box_share_counts_once(tier: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        for text in ALIKE.values():
            await shell(box, text)

    in_box(tree, work, {*TIERS[tier], "group"}, **SMALL)


STOPS = {
    "itself": "kill -STOP $$",
    "its parent": "python3 -c 'import os; os.kill(os.getppid(), 19)'; :",
    "its group": "python3 -c 'import os; os.killpg(0, 19)'",
    "by descriptor": "python3 -c 'import os, signal as s;"
    " s.pidfd_send_signal(os.pidfd_open(os.getppid()), 19)'; :",
    "all": "kill -STOP -1 & kill -STOP $$",
    "again and again": "(while :; do kill -STOP $$; sleep 0.04; kill -CONT $$; done) & wait",
}


@needs_namespaces
@pytest.mark.parametrize("how", STOPS)
def test_a_command_that_is_stopped_does_not_hold_its_box(how: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        done = await box.run(("bash", "-c", STOPS[how]), wall_seconds=60)
        assert (done.ended, done.detail) == (Ended.CRASHED, "stopped by a signal")
        done = await box.run(("bash", "-c", "(sleep 0.1; kill -CONT $$) & kill -STOP $$; echo on"))
        assert done.stdout == b"on\n", "one that goes on is not ended"

    in_box(tree, work)


@pytest.mark.parametrize("tier", TIERS)
def test_a_box_that_ends_during_a_command_is_that_commands_failure(tier: str, tree: Path) -> None:
    async def run() -> None:
        boxes = Boxes([wall for wall in WALLS if wall not in TIERS[tier]])
        async with boxes.open(BoxSpec(tree)) as box, boxes.open(BoxSpec(tree)) as other:
            first, _ = sorted(descendants(boxes._process.pid))  # type: ignore[union-attr]
            running = asyncio.create_task(box.run(("sleep", "98765")))
            await asyncio.sleep(0.2)
            os.kill(first, signal.SIGKILL)
            done = await running
            assert (done.ended, done.detail) == (Ended.CRASHED, "the command has ended its box")
            assert await box.run(("true",)) == done, "no other follows"
            with pytest.raises(OSError, match="the command has ended its box"):
                await box.read("a.txt")
            assert await shell(other, "echo on") == "on\n"
        await boxes.close()

    asyncio.run(run())
    assert leftovers() == []


def test_the_first_process_of_a_box_dies_after_its_commands(tree: Path) -> None:
    async def run() -> None:
        boxes = Boxes(WALLS)
        async with boxes.open(BoxSpec(tree)) as box:
            first = min(descendants(boxes._process.pid))  # type: ignore[union-attr]
            running = asyncio.create_task(box.run(("sleep", "0.5")))
            await asyncio.sleep(0.3)
            pids = [first, *(descendants(first))]
            scores = [int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in pids]
            assert scores == [900, 1000]
            await running
        await boxes.close()

    asyncio.run(run())


LACKS = {
    "/tmp": "touch /tmp/x",
    "/dev/shm": "touch /dev/shm/x",
    "/proc": "ls /proc",
    "/etc/passwd": "cat /etc/passwd",
    "sockets": "python3 -c 'import socket as s; s.socket(s.AF_UNIX)'",
    "sessions": "setsid -w true",
    "terminals": "python3 -c 'import os; os.openpty()'",
    "file locks": "flock a.txt true",
    "extended attributes": 'python3 -c \'import os; os.setxattr("a.txt", "user.x", b"1")\'',
    "chmod": "chmod 600 a.txt",
    "chown": "chown $(id -u) a.txt",
    "kill": "sleep 9 & kill $! || exit 1",
    "git init": "git init -q",
    "multiprocessing": "python3 -c 'import multiprocessing as m; m.Queue()'",
}


@pytest.mark.parametrize("what", LACKS)
def test_a_box_without_namespaces_says_what_it_lacks(what: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        done = await box.run(("bash", "-c", LACKS[what]), merged=True)
        assert done.status != 0, done.stdout.decode()
        assert what in FORMS[box.form]

    in_box(tree, work, TIERS["C"])


@pytest.mark.parametrize("tier", TIERS)
def test_what_a_command_started_ends_with_it(tier: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        started = time.monotonic()
        await shell(
            box, "(while :; do echo x >> a.txt; sleep 0.01; done) & (setsid sleep 99 &) ; :"
        )
        assert time.monotonic() - started < 5
        size = await shell(box, "wc -c < a.txt")
        await asyncio.sleep(0.2)
        assert await shell(box, "wc -c < a.txt") == size

    in_box(tree, work, TIERS[tier])


@pytest.mark.parametrize("tier", TIERS)
def test_a_command_has_its_limits(tier: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        done = await box.run(("sleep", "99"), wall_seconds=0.2)
        assert (done.ended, done.detail) == (Ended.WALL, "took more than 0.2 s")
        done = await box.run(("bash", "-c", "yes | head -c 5000000"), output_bytes=1000)
        assert len(done.stdout) < 1100
        assert b"4999000 bytes are left out" in done.stdout
        done = await box.run(("bash", "-c", "echo a; echo b >&2; exit 3"))
        assert (done.stdout, done.stderr, done.status) == (b"a\n", b"b\n", 3)
        done = await box.run(("cat",), stdin=b"given", merged=True)
        assert done.stdout == b"given"
        done = await box.run(("no-such-program",))
        assert (done.ended, done.status) == (Ended.EXITED, 126)
        assert b"No such file" in done.stderr
        done = await box.run(("python3", "-c", "b'x' * 2**30"))
        assert b"MemoryError" in done.stderr
        for number, name in ((11, "SIGSEGV"), (40, "signal 40")):
            done = await box.run(("bash", "-c", f"kill -{number} $$"))
            assert (done.ended, done.detail) == (Ended.CRASHED, f"killed by {name}") or tier == "C"

    in_box(tree, work, TIERS[tier], memory_mb=512)


@needs_namespaces
def test_a_box_holds_no_more_than_its_size_and_its_files(tree: Path) -> None:
    async def work(box: Box) -> None:
        done = await box.run(("bash", "-c", "head -c 30000000 /dev/zero > big"), merged=True)
        assert b"No space left" in done.stdout
        done = await box.run(("bash", "-c", "rm big; touch /tmp/{1..999}"), merged=True)
        assert b"No space left" in done.stdout
        bomb = ("bash", "-c", "f() { f | f & }; f; sleep 1")
        assert (await box.run(bomb, merged=True, wall_seconds=9)).ended is not Ended.LOST
        assert await shell(box, "echo on") == "on\n"

    in_box(tree, work, size_mb=16, files=500, processes=64)


@pytest.mark.parametrize("tier", TIERS)
def test_files_are_written_and_read_whatever_a_command_has_left(tier: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        await shell(box, "rm -r src && ln -s / src && ln -s /etc/passwd l && mkdir a && mkfifo f;:")
        await box.write({"src/c.py": b"1", "l": b"2", "a": b"3", "new/d/e": b"4"}, ["l"])
        assert [await box.read(path) for path in ("src/c.py", "l", "a", "new/d/e")] == [
            b"1", b"2", b"3", b"4",
        ]  # fmt: skip
        assert await shell(box, "test -x l && test ! -L src && echo right") == "right\n"
        for path, why in (("f", "is no file|No such"), ("none", "No such file"), (".", "director")):
            with pytest.raises(OSError, match=why):
                await box.read(path)
        with pytest.raises(OSError, match="more than 3 bytes"):
            await box.read("a.txt", most=3)

    in_box(tree, work, TIERS[tier])


@pytest.mark.parametrize("tier", TIERS)
def test_the_diff_of_a_box_gives_its_files_again(tier: str, tree: Path, tmp_path: Path) -> None:
    changes = (
        "echo three >> a.txt; rm src/b.py; mkdir e; echo x > 'e/a b'; touch -d @9 'e/a b';"
        "head -c 999 /dev/urandom > e/z; ln -s /etc/passwd e/link;"
        "mkdir __pycache__ .git; touch __pycache__/x .git/y;"
        "printf 'caf\\351' > e/latin; echo hi > 'e/\u00e9'"
    )

    async def work(box: Box) -> None:
        await shell(box, changes)
        if box.form != "folder":
            await shell(box, "mkfifo e/fifo; chmod +x a.txt; python3 -c 'import socket as s;"
                        " s.socket(s.AF_UNIX).bind(\"e/sock\")'")  # fmt: skip
        diff = await box.diff()
        copy = tmp_path / "copy"
        subprocess.run(["cp", "-r", tree, copy], check=True)
        applied = subprocess.run(
            ["git", "apply", "-"], cwd=copy, input=diff.encode("utf-8", "surrogateescape"),
            capture_output=True, check=False,
        )  # fmt: skip
        assert applied.returncode == 0, applied.stderr.decode()
        names = sorted(str(path.relative_to(copy)) for path in copy.rglob("*"))
        assert names == ["a.txt", "e", "e/a b", "e/latin", "e/link", "e/z", "e/\u00e9"]
        assert (copy / "a.txt").read_text() == "one\ntwo\nthree\n"
        assert (copy / "e/z").read_bytes() == await box.read("e/z")
        assert (copy / "e/latin").read_bytes() == b"caf\xe9"
        assert (copy / "e/link").readlink() == Path("/etc/passwd")
        assert bool((copy / "a.txt").stat().st_mode & 0o100) == (box.form != "folder")

    in_box(tree, work, TIERS[tier])


@needs_namespaces
def test_files_of_a_deep_folder_cost_no_look_at_each_folder_above(tree: Path) -> None:
    """At one for each, the diff takes longer than a box may."""

    async def work(box: Box) -> None:
        await shell(box, "p=$(printf 'd/%.0s' $(seq 1900)); mkdir -p $p; cd $p; touch {1..300}")
        assert (await box.diff()).count("new file mode") == 300

    in_box(tree, work)


REPLACED = {
    "a folder by a file": ("rm -r src; echo x > src", ["a.txt", "src"]),
    "a folder by a link": ("rm -r src; ln -s /etc src", ["a.txt", "src"]),
    "a folder by a link to its like": ("mv src new; ln -s new src", ["a.txt", "new/b.py", "src"]),
    "a file by a folder": ("rm a.txt; mkdir a.txt; echo x > a.txt/c", ["a.txt/c", "src/b.py"]),
    "a folder by a pipe": ("rm -r src; mkfifo src", ["a.txt"]),
}


@needs_namespaces
@pytest.mark.parametrize("what", REPLACED)
def test_what_stands_in_the_place_of_a_folder_is_in_the_diff_and_undone(
    what: str, tree: Path, tmp_path: Path
) -> None:
    command, expected = REPLACED[what]

    async def work(box: Box) -> None:
        await shell(box, command)
        copy = tmp_path / "copy"
        subprocess.run(["cp", "-r", tree, copy], check=True)
        diff = await box.diff()
        subprocess.run(["git", "apply", "-"], cwd=copy, input=diff.encode(), check=True)
        files = [path for path in copy.rglob("*") if path.is_symlink() or path.is_file()]
        assert sorted(str(path.relative_to(copy)) for path in files) == expected
        await box.copy(box.tree, box.folder, await box.changes())
        assert await box.diff() == ""
        assert await box.read("src/b.py") == b"x = 1\n"

    in_box(tree, work)


@needs_namespaces
@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a file system for it")
def test_where_overlays_are_refused_the_tree_is_copied(tree: Path) -> None:
    async def work(box: Box) -> None:
        assert box.form == "copy"
        assert "boot_id" in await shell(box, "echo 3 > new; ls")

    subprocess.run(["mount", "-t", "proc", "proc", tree], check=True)
    try:
        in_box(tree / "sys/kernel/random", work)  # which overlayfs does not take as a layer
    finally:
        subprocess.run(["umount", tree], check=True)


@pytest.mark.parametrize("tier", TIERS)
def test_nothing_is_left_of_a_box(tier: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        await box.run(("bash", "-c", "echo x > $TMPDIR/x; sleep 98765 & setsid sleep 98765 & :"))

    in_box(tree, work, TIERS[tier])
    assert leftovers() == []


def test_a_box_ends_with_whoever_opened_it(tree: Path) -> None:
    program = f"""
import asyncio, os, signal, sys
from pathlib import Path
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.boxes import Boxes
async def main():
    async with Boxes({list(WALLS)}).open(BoxSpec(Path({str(tree)!r}))) as box:
        asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGKILL)
        await box.run(("sleep", "98765"))
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=30)
    assert done.returncode == -9
    assert leftovers() == []


@pytest.mark.parametrize("tier", TIERS)
def test_a_call_that_is_cancelled_ends_and_its_box_lives_on(tier: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await box.run(("bash", "-c", "echo x > kept; sleep 98765 & sleep 98765"))
            assert await shell(box, "cat kept; pgrep -c sleep || true") == "x\n0\n"
        waiting = asyncio.create_task(box.run(("sleep", "98765")))
        await asyncio.sleep(0)
        waiting.cancel()  # as soon as it is asked for
        assert await shell(box, "echo on") == "on\n"
        for wait in range(40):  # about when it ends by itself
            ending = asyncio.create_task(box.run(("echo", "own")))
            await asyncio.sleep(wait / 4000)
            ending.cancel()
            assert await shell(box, "echo on") == "on\n"

    in_box(tree, work, TIERS[tier])
    assert leftovers() == []


def test_a_caller_that_is_cancelled_again_and_again_leaves_a_box_that_works(tree: Path) -> None:
    async def work(box: Box) -> None:
        running = asyncio.create_task(box.run(("sleep", "98765")))
        await asyncio.sleep(0.2)
        while not running.done():
            running.cancel()
            await asyncio.sleep(0)
        assert await shell(box, "pgrep -c sleep || true") == "0\n"

    in_box(tree, work)


@pytest.mark.parametrize("tier", TIERS)
def test_what_a_daemon_writes_in_an_exchange_that_is_cancelled_comes_with_the_next(
    tier: str, tree: Path
) -> None:
    async def work(box: Box) -> None:
        daemon = await box.start(
            ("bash", "-c", "printf a; read -r it; echo $it; read -r it; echo $it")
        )
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await box.exchange(daemon, b"", wall_seconds=60)
        done = await box.exchange(daemon, b"b\n", wall_seconds=60)
        assert (done.stdout, done.ended) == (b"ab\n", Ended.EXITED)
        for wait in range(20):
            echo = await box.start(("cat",))
            asked = asyncio.create_task(box.exchange(echo, b"c\n", wall_seconds=60))
            await asyncio.sleep(wait / 4000)
            asked.cancel()
            await asyncio.wait({asked})
            seen = await box.exchange(echo, b"d\n", wall_seconds=60)
            assert seen.ended is Ended.EXITED
            assert seen.stdout in (b"c\n", b"c\nd\n", b"d\n")
            await box.stop(echo)

    in_box(tree, work, TIERS[tier])


def test_a_start_that_is_cancelled_gives_its_number_to_no_other(tree: Path) -> None:
    async def work(box: Box) -> None:
        running = asyncio.create_task(box.run(("sleep", "1")))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(box.start(("echo", "waiting")))
        await asyncio.sleep(0)
        waiting.cancel()
        await running
        asked = asyncio.create_task(box.start(("echo", "asked")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asked.cancel()
        third = await box.start(("echo", "third"))
        assert (await box.exchange(third, b"", wall_seconds=60)).stdout == b"third\n"

    in_box(tree, work)


@pytest.mark.parametrize("tier", TIERS)
def test_a_box_that_is_closed_ends_the_command_that_runs(tier: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        calls = [asyncio.create_task(box.run(("sleep", "98765"))) for _ in range(2)]
        await asyncio.sleep(0.3)
        await box.close()
        for call in calls:
            with pytest.raises(SandboxError, match="the box has ended"):
                await call
        assert not box.has_ended, "no command has ended it"

    in_box(tree, work, TIERS[tier])
    assert leftovers() == []


def test_what_cannot_be_sent_ends_no_box(tree: Path) -> None:
    async def work(box: Box) -> None:
        with pytest.raises(TypeError):
            await box.run(("cat", tree / "a.txt"))  # type: ignore[arg-type]
        assert await shell(box, "echo on") == "on\n"

    in_box(tree, work)


@pytest.mark.parametrize("tier", TIERS)
def test_boxes_end_with_the_process_that_forked_them_and_others_can_be_opened(
    tier: str, tree: Path
) -> None:
    async def run() -> None:
        boxes = Boxes([wall for wall in WALLS if wall not in TIERS[tier]])
        async with boxes.open(BoxSpec(tree)) as one, boxes.open(BoxSpec(tree)) as other:
            running = asyncio.create_task(one.run(("bash", "-c", "sleep 98765 & wait")))
            await shell(other, "echo begun")
            await asyncio.sleep(0.3)
            boxes._process.kill()  # type: ignore[union-attr]
            for lost in (running, other.run(("true",))):
                with pytest.raises(SandboxError, match="the box has ended"):
                    await asyncio.wait_for(lost, 5)
        async with boxes.open(BoxSpec(tree)) as box:
            assert await shell(box, "cat a.txt") == "one\ntwo\n"
        await boxes.close()

    asyncio.run(run())
    assert leftovers() == []


def test_two_boxes_do_not_see_each_other(tree: Path) -> None:
    async def run() -> None:
        boxes = Boxes(WALLS)
        async with boxes.open(BoxSpec(tree)) as one, boxes.open(BoxSpec(tree)) as other:
            await shell(one, "echo mine > a.txt; echo mine > $TMPDIR/x")
            assert await shell(other, "cat a.txt; ls -A $TMPDIR") == "one\ntwo\n"
        await boxes.close()

    asyncio.run(run())


@needs_namespaces
def test_a_box_has_writable_folders_of_the_names_that_it_asks_for(tree: Path) -> None:
    async def work(box: Box) -> None:
        assert await shell(box, "ls -A /logs /tests") == "/logs:\n\n/tests:\n"
        await shell(box, "mkdir /logs/verifier && echo 1 > /logs/verifier/reward.txt")
        assert await box.read("/logs/verifier/reward.txt") == b"1\n"
        await box.write({"in/test.sh": b"pwd"}, ["in/test.sh"], folder="/tests")
        assert await shell(box, "/bin/bash -c /tests/in/test.sh") == "/testbed\n"
        assert await box.changes() == []

    in_box(tree, work, writable=("/logs", "/tests"))


def test_a_box_without_namespaces_has_no_other_writable_folders(tree: Path) -> None:
    async def work(_: Box) -> None:
        raise AssertionError

    with pytest.raises(SandboxError, match="a box with /logs needs namespaces"):
        in_box(tree, work, TIERS["C"], writable=("/logs",))


def test_a_machine_without_git_says_so(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENT, "PATH", "/none")
    assert asyncio.run(describe_boxes(WALLS)).startswith(
        "none: boxes need git in /usr/bin; install"
    )


def test_a_box_for_which_nothing_is_left_to_open_it_with_ends_no_other(tree: Path) -> None:
    program = f"""
import asyncio, contextlib, resource
from pathlib import Path
from assay.errors import SandboxError
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.boxes import Boxes
async def main():
    boxes, stack = Boxes({list(WALLS)}), contextlib.AsyncExitStack()
    spec = BoxSpec(Path({str(tree)!r}))
    opened = [await stack.enter_async_context(boxes.open(spec)) for _ in range(5)]
    resource.prlimit(boxes._process.pid, resource.RLIMIT_NOFILE, (8, 8))
    for _ in range(20):
        with contextlib.suppress(SandboxError):
            await stack.enter_async_context(boxes.open(spec))
    print([(await box.run(("true",))).status for box in opened])
    await stack.aclose()
    await boxes.close()
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[0, 0, 0, 0, 0]\n", done.stderr
    assert leftovers() == []


@needs_namespaces
def test_a_box_shows_certificates_but_no_keys(tree: Path) -> None:
    async def work(box: Box) -> None:
        assert set((await shell(box, "ls /etc/ssl")).split()) <= {"certs", "openssl.cnf"}

    in_box(tree, work)


def test_a_diff_is_made_by_nobodys_settings(tree: Path) -> None:
    async def work(box: Box) -> None:
        await shell(box, "git config --global diff.context 0; echo 3 >> a.txt")
        await shell(box, "git config --global core.attributesFile $HOME/x; echo '* -diff' > ~/x")
        assert " two\n+3\n" in await box.diff()

    in_box(tree, work)


def test_a_box_without_a_tree_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path / "none"):
            pass

    with pytest.raises(SandboxError, match=r"a box cannot be opened: .*No such file"):
        asyncio.run(run())


def leftovers() -> list[str]:
    """Processes, folders and groups that a box left, where they stay: what has just ended may take
    a moment to go, also in the kernel.
    """
    end = time.monotonic() + 5
    while (left := left_now()) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def left_now() -> list[str]:
    processes = subprocess.run(["pgrep", "-f", "sleep 98765|box_zygote"], capture_output=True)
    mine = [pid for pid in processes.stdout.decode().split() if is_ours(pid)]
    folders = [str(path) for path in Path("/dev/shm").glob("assay-*-work*") if is_dead(path.name)]
    groups = [
        f"{path} holds {held}"
        for path in groups_of_boxes() - OTHERS
        if is_dead(path.name) and (held := holds(path)) is not None
    ]
    return [*mine, *folders, *groups]


def groups_of_boxes() -> set[Path]:
    """The control groups of boxes, of whichever process."""
    walk = (Path(at) / name for at, names, _ in os.walk("/sys/fs/cgroup") for name in names)
    return {path for path in walk if fnmatch(path.name, "assay-*-box*")}


def holds(group: Path) -> list[str] | None:
    """Processes and groups within a group, where it has not gone meanwhile."""
    try:
        inside = [path.name for path in group.iterdir() if path.is_dir()]
        return [*(group / "cgroup.procs").read_text().split(), *inside]
    except OSError:
        return None


def is_ours(pid: str) -> bool:
    """Whether a process is not of another run of these tests, which has a living grandparent."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        return False
    return b"98765" in command or parent in ("1", str(os.getpid()))


def is_dead(name: str) -> bool:
    """Whether the process that has made a folder of this name has ended."""
    return not Path(f"/proc/{name.split('-')[1]}").exists()


ON_OTHERS = {
    "a signal to all": "kill -9 -1 2>&1; sleep 0.2; true",
    "a signal to each": "for n in $(ls /proc | grep -E '^[0-9]+$'); do"
    " [ $n = $$ ] || kill -9 $n; done 2>/dev/null; true",
    "memory and environment": "cat /proc/[0-9]*/environ 2>/dev/null"
    " | tr '\\0' '\\n' | grep -a SECRET; cat /proc/[0-9]*/root/$OTHER/secret 2>/dev/null; true",
    "files": "cat $OTHER/secret $OTHER/../*/secret 2>/dev/null; echo x > $OTHER/a.txt; true",
    "processes": "for n in {1..150}; do sleep 2 & done 2>/dev/null; true",
}
"""Commands in one box that reach for another one, whose folder is $OTHER."""


@pytest.mark.skipif(os.getuid() != 0, reason="only root has other users")
@pytest.mark.parametrize("without", ["", "namespaces", "namespaces landlock", "namespaces seccomp"])
@pytest.mark.parametrize("how", ON_OTHERS)
def test_two_boxes_of_one_machine_do_not_reach_or_starve_each_other(
    how: str, without: str, tree: Path
) -> None:
    left_out = {*without.split()}

    async def attack() -> None:
        async with opened(tree, left_out, processes=200) as box, opened(tree, left_out) as other:
            await shell(other, "echo SECRET > secret")
            waiting = asyncio.create_task(
                shell(other, "for n in {1..60}; do sleep 1 & done; sleep 1; wait; cat secret a.txt",
                      environment={"WORD": "SECRET"})
            )  # fmt: skip
            await asyncio.sleep(0.3)
            seen = await shell(box, ON_OTHERS[how], environment={"OTHER": other.folder})
            assert "SECRET" not in seen
            assert await waiting == "SECRET\none\ntwo\n"

    asyncio.run(attack())


def test_a_user_is_claimed_by_one_alone_until_it_is_left() -> None:
    if os.getuid() != 0:
        assert claim_user().user is None
        return
    claims = [claim_user() for _ in range(5)]
    users = [claim.user for claim in claims]
    assert len(set(users)) == 5
    claims[2].release()
    again = claim_user()
    assert again.user == users[2]
