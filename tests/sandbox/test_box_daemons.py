"""Daemons of boxes: they stay over commands, share the box's limits, and end with it; nothing that
a command leaves does.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.sandbox.box import MOST_DAEMONS, Box
from assay.sandbox.box_daemons import Daemons
from assay.sandbox.kernel import read_text
from assay.sandbox.program import Ended
from tests.judge.processes import descendants
from tests.sandbox.test_box import TIERS, in_box, needs_namespaces, shell, tree

__all__ = ["tree"]

COUNTER = """
import os, sys
for number, line in enumerate(sys.stdin):
    print(number, os.getppid(), line.strip(), flush=True)
"""
ECHO = "while read -r line; do echo got $line; done"


def python(source: str) -> tuple[str, ...]:
    return ("python3", "-c", source)


async def said(box: Box, daemon: int, text: str, seconds: float = 20.0) -> str:
    """What a daemon answers, which must be a line."""
    done = await box.exchange(daemon, text.encode() + b"\n", wall_seconds=seconds)
    assert done.ended is Ended.EXITED, done
    return done.stdout.decode()


@pytest.mark.parametrize("tier", TIERS)
def test_a_daemon_keeps_its_state_over_commands_and_is_seen_by_none_to_end(
    tier: str, tree: Path
) -> None:
    async def work(box: Box) -> None:
        daemon = await box.start(python(COUNTER))
        for number in range(3):
            assert (await said(box, daemon, f"x{number}")).split()[::2] == [
                str(number),
                f"x{number}",
            ]
            assert await shell(box, "(sleep 60 &) ; echo on") == "on\n"
            await box.write({f"f{number}": b"x"})

    in_box(tree, work, TIERS[tier])


LEAVES = {
    "a child": "sleep 60 & echo $!",
    "an orphan": "(sleep 60 & echo $!)",
    "a session": "setsid sleep 60 & sleep 0.2; pgrep -x sleep",
    "a chain of forks": "python3 -c 'import os, time\nfor n in range(10**9):\n"
    "  if os.fork(): os._exit(0)\n  os.setsid()' & sleep 0.2; echo",
    "what wakes others": "python3 -c 'import os, signal\nfor n in range(5): os.fork()\n"
    "while True:\n  os.setsid() if os.getsid(0) != os.getpid() else None\n"
    "  os.kill(-1, signal.SIGCONT)\n  os.fork()' & sleep 0.3; echo",
    "one that hides": "python3 -c 'import ctypes, os, time\nif os.fork(): os._exit(0)\n"
    "os.setsid(); ctypes.CDLL(None).prctl(4, 0); time.sleep(60)' ; echo",
    "one whose leader has ended": "python3 -c 'import ctypes, os, threading, time\n"
    "threading.Thread(target=time.sleep, args=(60,)).start()\n"
    "os.setsid() if os.fork() == 0 else None\nctypes.CDLL(None).syscall(60, 0)' & sleep 0.3; echo",
}


@needs_namespaces
@pytest.mark.parametrize("what", LEAVES)
def test_what_a_command_leaves_ends_though_a_daemon_stays(what: str, tree: Path) -> None:
    seen = 'import os; print(*[p for p in os.listdir("/proc") if p.isdigit()])'

    async def work(box: Box) -> None:
        daemon = await box.start(("bash", "-c", ECHO))
        assert await said(box, daemon, "a") == "got a\n"
        await box.run(("bash", "-c", LEAVES[what]), wall_seconds=5.0)
        there = (await shell(box, f"python3 -c '{seen}'")).split()
        assert len(there) == 2, "the daemon and this one"
        assert await said(box, daemon, "b") == "got b\n"

    in_box(tree, work, processes=64)


@pytest.mark.parametrize("tier", TIERS)
def test_a_daemon_that_a_command_kills_has_ended_and_the_box_goes_on(tier: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        daemon = await box.start(("bash", "-c", f"echo $$; {ECHO}"))
        pid = (await box.exchange(daemon, b"", wall_seconds=20)).stdout.decode().strip()
        await box.run(("bash", "-c", f"kill -STOP {pid} || kill -9 {pid}; kill -9 -1"))
        done = await box.exchange(daemon, b"a\n", wall_seconds=20)
        if tier == "C":  # where nothing may send a signal
            assert done.stdout == b"got a\n"
        else:
            assert (done.ended, done.detail) == (Ended.CRASHED, "killed by SIGKILL")
        assert await shell(box, "echo on") == "on\n"

    in_box(tree, work, TIERS[tier])


@pytest.mark.parametrize("tier", TIERS)
def test_it_is_said_how_a_daemon_has_ended(tier: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        absent = await box.start(("no-such-program",))
        first = await box.exchange(absent, b"a\n", wall_seconds=20)
        assert first.ended is Ended.CRASHED
        assert b"No such file" in first.stderr
        again = await box.exchange(absent, b"a\n", wall_seconds=20)
        assert (again.ended, again.detail) == (Ended.CRASHED, "exited with status 126")
        brief = await box.start(
            ("bash", "-c", "read line; echo last; sleep 1; echo why >&2; exit 3")
        )
        assert await said(box, brief, "") == "last\n"
        done = await box.exchange(brief, b"a\n", wall_seconds=20)
        assert (done.ended, done.detail) == (Ended.CRASHED, "exited with status 3")
        assert done.stderr.endswith(b"why\n")

    in_box(tree, work, TIERS[tier])


def test_the_last_words_of_a_daemon_that_ended_before_anybody_looked_are_kept() -> None:
    ours, its = socket.socketpair()
    daemons, (trainer, other) = Daemons(False), socket.socketpair()
    source = "import sys; sys.exit('last words')"
    with ours, its, trainer, other, subprocess.Popen(
        python(source), stdin=its.fileno(), stdout=its.fileno(), stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:  # fmt: skip
        its.close()
        assert process.stderr is not None
        daemons.add(process.pid, ours, process.stderr.fileno())
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        watch: Any = SimpleNamespace(next_look=inf)
        stop = daemons.exchange(0, b"", bytearray(), 20.0, 9, watch, trainer)
        assert stop == (Ended.CRASHED, "exited with status 1")
        assert daemons.errors(0) == b"last words\n"


SILENT = {
    "its output": "socket.socket(fileno=os.dup(1)).shutdown(socket.SHUT_WR)",
    "both streams": "os.close(0); os.close(1)",
    "its errors too": "os.close(2); socket.socket(fileno=os.dup(1)).shutdown(socket.SHUT_WR)",
}


@pytest.mark.parametrize("what", SILENT)
def test_a_daemon_that_has_closed_a_stream_is_waited_for_without_asking_it_ever_again(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    wait = Daemons._wait

    def counted(*arguments: Any) -> None:
        nonlocal looks
        looks += 1
        wait(*arguments)

    monkeypatch.setattr(Daemons, "_wait", counted)
    ours, its = socket.socketpair()
    source = f"import os, socket, time; print('on', flush=True); {SILENT[what]}; time.sleep(60)"
    daemons, (trainer, other) = Daemons(False), socket.socketpair()
    with (
        ours, its, trainer, other,
        subprocess.Popen(
            python(source), stdin=its.fileno(), stdout=its.fileno(), stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process,
    ):  # fmt: skip
        its.close()
        assert process.stderr is not None
        daemons.add(process.pid, ours, process.stderr.fileno())
        watch: Any = SimpleNamespace(next_look=inf)
        output, seconds = bytearray(), 20.0
        assert daemons.exchange(0, b"", output, seconds, 9, watch, trainer) is None
        assert output == b"on\n"
        looks = 0
        stop = daemons.exchange(0, b"x\n", output, 0.5, 9, watch, trainer)
        process.kill()
    assert stop
    assert stop[0] is Ended.WALL
    assert looks < 1000, "a look that waits for nothing takes some microseconds"


@pytest.mark.parametrize("tier", TIERS)
def test_an_exchange_has_its_time_and_its_size(tier: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        silent = await box.start(("sleep", "600"))
        assert (await box.exchange(silent, b"a\n", wall_seconds=0.2)).ended is Ended.WALL
        for _ in range(2):
            done = await box.exchange(silent, b"x" * (3 << 20), wall_seconds=0.2)
        assert (done.ended, done.detail[:13]) == (Ended.CRASHED, "reads nothing")
        flood = await box.start(python("while True: print('x' * 9999, end='')"))
        for _ in range(2):
            done = await box.exchange(flood, b"", wall_seconds=20, output_bytes=1 << 20)
            assert 1 << 20 <= len(done.stdout) < 2 << 20
        closed = await box.start(("bash", "-c", "exec 0<&- 1<&- 2<&-; sleep 600"))
        assert (await box.exchange(closed, b"a\n", wall_seconds=0.2)).ended is Ended.WALL
        assert await shell(box, "echo on") == "on\n"

    in_box(tree, work, TIERS[tier])


@pytest.mark.parametrize("how", ["in an exchange", "during a command"])
@pytest.mark.parametrize("tier", TIERS)
def test_the_memory_of_daemons_and_commands_counts_together(
    how: str, tier: str, tree: Path
) -> None:
    grows = (
        "import sys, time\nkept = b''\nfor line in sys.stdin:\n"
        "  kept = kept or b'1' * (80 << 20)\n  time.sleep(0.3)\n  print(1, flush=True)"
    )  # it is looked at before it has answered

    async def work(box: Box) -> None:
        first, second, third, fourth, last = [await box.start(python(grows)) for _ in range(5)]
        assert await said(box, first, "") == await said(box, second, "") == "1\n"
        if how == "in an exchange":
            assert await said(box, third, "") == await said(box, fourth, "") == "1\n"
            done = await box.exchange(last, b"\n", wall_seconds=20)
            assert (done.ended, done.detail[-13:]) == (Ended.MEMORY, "sses together")
            assert await said(box, first, "") == "1\n"
        else:
            kept = "import time; kept = b'1' * (80 << 20); time.sleep(9)"
            three = f'python3 -c "{kept}" & python3 -c "{kept}" & python3 -c "{kept}"'
            done = await box.run(("bash", "-c", three))
            assert done.ended is Ended.MEMORY
            assert await said(box, first, "") == "1\n", "the command was to blame"
        assert await shell(box, "echo on") == "on\n"

    in_box(tree, work, {*TIERS[tier], "group"}, memory_mb=100)


@pytest.mark.parametrize("tier", TIERS)
def test_daemons_that_alone_take_too_much_end_and_commands_run_again(tier: str, tree: Path) -> None:
    grows = (
        "import os, sys, time\nfor line in sys.stdin:\n  print(1, flush=True)\n"
        "  if os.fork() == 0:\n    if os.fork() == 0: os.fork()\n"
        "    time.sleep(1)\n    kept = b'1' * (95 << 20)\n    time.sleep(60)"
    )  # each child alone has what one process may have

    async def work(box: Box) -> None:
        daemons = [await box.start(python(grows)) for _ in range(2)]
        for daemon in daemons:
            await said(box, daemon, "")
        done = await box.run(("sleep", "30"))
        assert done.ended is Ended.MEMORY, done
        assert await shell(box, "echo on") == "on\n"
        done = await box.exchange(daemons[0], b"\n", wall_seconds=20)
        assert done.ended is Ended.MEMORY

    in_box(tree, work, {*TIERS[tier], "group"}, memory_mb=100)


@pytest.mark.parametrize("tier", TIERS)
def test_what_a_daemon_starts_stays_in_its_session_and_nothing_is_left_of_the_box(
    tier: str, tree: Path
) -> None:
    starts = "read line; (sleep 600 & echo $!); setsid sleep 600 & read line; echo end"

    async def work(box: Box) -> None:
        daemon = await box.start(("bash", "-c", starts))
        child = (await said(box, daemon, "")).strip()
        if tier == "A":
            await shell(box, "sleep 0.3")
            listed = await shell(box, "cat /proc/[0-9]*/comm; cat /proc/[0-9]*/stat")
            assert listed.split("\n").count("sleep") == 1
            assert f"{child} (sleep) T" in listed or f"{child} (sleep) S" in listed
        assert await said(box, daemon, "") == "end\n"

    in_box(tree, work, TIERS[tier])


def test_a_box_has_few_daemons(tree: Path) -> None:
    async def work(box: Box) -> None:
        for _ in range(MOST_DAEMONS):
            await box.start(("bash", "-c", ECHO))
        with pytest.raises(ValueError, match=f"up to {MOST_DAEMONS} daemons"):
            await box.start(("bash", "-c", ECHO))
        assert await said(box, MOST_DAEMONS - 1, "a") == "got a\n"

    in_box(tree, work)


@pytest.mark.parametrize("tier", TIERS)
def test_a_daemon_runs_only_while_the_box_does_something(tier: str, tree: Path) -> None:
    busy = "echo on; while :; do :; done"

    async def work(box: Box) -> None:
        daemon = await box.start(("bash", "-c", busy))
        assert (await box.exchange(daemon, b"", wall_seconds=20)).stdout == b"on\n"
        for _ in range(3):
            (state,) = states(box, "bash")
            assert state == "T"
            await box.run(("true",))

    in_box(tree, work, TIERS[tier])


def states(box: Box, name: str) -> list[str]:
    """The states of a box's processes of this name, once none is about to be stopped."""
    for _ in range(1000):
        texts = (read_text(f"/proc/{pid}/stat") for pid in descendants(box._zygote.pid))
        letters = [text.split()[2] for text in texts if f"({name})" in text]
        if "R" not in letters:
            break
        time.sleep(0.001)
    return letters
