"""Any process may be killed at any moment: a right verdict or a clear error follows, and nothing is
left running.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from assay.errors import SandboxError
from assay.judge import Job, Judge, base
from assay.judge import judge as judge_module
from assay.judge.verdict import CircuitBreaker
from assay.sandbox.events import Events
from assay.sandbox.isolation import Isolation
from assay.sandbox.limits import Limits
from assay.sandbox.processes import CandidateProcess
from assay.sandbox.program import Program
from assay.sandbox.slot import CANDIDATES_PER_FORK
from assay.sandbox.sockets import HEADER, BufferedSocket
from assay.sandbox.zygote_process import ZygoteMessage, ZygoteProcess
from assay.types import Cause, Execution, Verdict
from tests.judge.jobs import RIGHT, add, task
from tests.judge.opened import judge_all
from tests.judge.processes import alive, children, descendants, gone, until, zygotes

SLOW = f"import time\ntime.sleep(0.7)\n{RIGHT}"


async def processes(judge: Judge) -> dict[str, list[int]]:
    """Of the one slot, in the order in which they will be used: a zygote forks two workers, then
    its candidate processes, of which a first job has used one.
    """
    await judge.run(add(RIGHT))
    supervisor = judge.pid
    await until(
        lambda: (
            [len(children(zygote)) for zygote in zygotes(supervisor)] == [1 + CANDIDATES_PER_FORK]
        )
    )
    (zygote,) = zygotes(supervisor)
    forked = sorted(children(zygote))
    return {
        "started": children(supervisor),
        "zygote": [zygote],
        "worker": forked[:2],
        "candidate": forked[2:],
    }


async def judged_while_killing(which: str, times: int = 1) -> Execution:
    """Judge a slow program in one slot, and kill one of its processes while it runs, in each of
    `times` attempts.
    """
    async with Judge(slots=1) as judge:
        victims = (await processes(judge))[which][:times]
        job = asyncio.create_task(judge.run(add(SLOW)))
        for pid in victims:
            await asyncio.sleep(0.2)
            os.kill(pid, signal.SIGKILL)
            await until(partial(gone, [pid], 0.0))
        return await asyncio.wait_for(job, 10)


@pytest.mark.parametrize("which", ["started", "zygote", "candidate", "worker"])
def test_a_job_whose_process_is_killed_is_judged_again(which: str) -> None:
    assert asyncio.run(judged_while_killing(which)).verdict is Verdict.PASS


def test_a_program_that_is_killed_twice_is_taken_to_have_died() -> None:
    execution = asyncio.run(judged_while_killing("candidate", times=2))
    assert (execution.verdict, execution.detail) == (Verdict.ERROR, "killed by SIGKILL")


def test_a_worker_that_dies_twice_is_the_machines_failure() -> None:
    assert asyncio.run(judged_while_killing("worker", times=2)).verdict is Verdict.INFRA


def test_a_program_that_dies_of_a_signal_without_a_name_harms_no_other() -> None:
    dead, right = judge_all([add("import signal\nsignal.raise_signal(40)"), add(RIGHT)])
    assert (dead.verdict, dead.detail) == (Verdict.ERROR, "killed by signal 40")
    assert right.verdict is Verdict.PASS


def test_the_supervisors_death_is_a_clear_error_and_ends_everything() -> None:
    async def bereft() -> list[int]:
        async with Judge(slots=2) as judge:
            job = asyncio.create_task(judge.run(add("while True: pass")))
            await until(lambda: len(descendants(judge.pid)) >= 2 * 3)
            await asyncio.sleep(0.1)
            pids = descendants(judge.pid)
            os.kill(judge.pid, signal.SIGKILL)
            with pytest.raises(SandboxError, match="supervisor died"):
                await asyncio.wait_for(job, 5)
            with pytest.raises(SandboxError, match="supervisor died"):
                await judge.run(add(RIGHT))
            return pids

    assert gone(asyncio.run(bereft()))


def test_nothing_runs_after_the_judge_is_closed() -> None:
    async def closed() -> list[int]:
        async with Judge(slots=2) as judge:
            await judge.run(add(RIGHT))
            stuck = asyncio.create_task(judge.run(add("while True: pass")))
            await asyncio.sleep(0.1)
            pids = [judge.pid, *descendants(judge.pid)]
            stuck.cancel()
            await asyncio.wait([stuck])
            return pids

    assert not alive(asyncio.run(closed()))


TRAINER = """
import asyncio, sys
from assay.judge import Judge
from tests.judge.jobs import add
async def main():
    async with Judge(slots=2) as judge:
        await asyncio.gather(*(judge.run(add("")) for _ in range(8)))
        jobs = [asyncio.create_task(judge.run(add("while True: pass"))) for _ in range(2)]
        await asyncio.sleep(0.1)
        print(judge.pid, flush=True)
        await asyncio.gather(*jobs)
asyncio.run(main())
"""


def test_nothing_runs_after_the_trainer_is_killed() -> None:
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    supervisor = int(trainer.stdout.readline())
    pids = [supervisor, *descendants(supervisor)]
    assert len(pids) >= 1 + 2 + 2
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    assert gone(pids)


def test_many_failures_of_the_machine_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "CircuitBreaker", partial(CircuitBreaker, tolerated=2))

    async def failing(*_: object) -> Execution:
        return Execution(Verdict.INFRA, detail="the zygote died")

    monkeypatch.setattr(Judge, "_execute", failing)
    with pytest.raises(
        SandboxError, match="failed 3 of the last 3 programs, at last: the zygote died"
    ):
        judge_all([add(f"def add(a, b): return {at}") for at in range(3)])


def test_a_task_whose_own_setup_fails_is_no_sign_of_a_bad_machine_and_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(base, "CircuitBreaker", partial(CircuitBreaker, tolerated=0))
    broken = task("f", "assert f() < limit", setup="import no_such_module\nlimit = 9")
    executions = judge_all([Job(broken, f"def f(): return {at}") for at in range(3)])
    assert [seen.verdict for seen in executions] == [Verdict.UNJUDGED] * 3
    assert [
        record.message.startswith("task f cannot be judged (task): the task's setup")
        for record in caplog.records
    ] == [True]


def test_weak_isolation_is_refused_unless_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        judge_module,
        "probe_isolation",
        lambda: Isolation("D", (), ("reading files: no landlock",), "use Linux"),
    )
    with pytest.raises(SandboxError, match=r"tier D .* use Linux; see `assay doctor`"):
        judge_module.judge_all([add(RIGHT)])
    assert judge_module.judge_all([add(RIGHT)], allow_weak=True)[0].verdict is Verdict.PASS


@pytest.mark.long
def test_many_hostile_programs_leave_no_process_behind() -> None:
    async def battered() -> None:
        async with Judge(Limits(cpu_seconds=0.2, wall_seconds=1), slots=2) as judge:
            hostile = [
                "import os\nos._exit(0)",
                "def add(a, b): return [0] * 10**6",
                "import threading\nexit()",
            ] * 8
            async for _ in judge.stream(map(add, hostile)):
                pass
            await until(
                lambda: (
                    len(descendants(judge.pid))
                    <= 2 * (2 + 2 + 1 + CANDIDATES_PER_FORK + CANDIDATES_PER_FORK // 4)
                )
            )

    asyncio.run(battered())


def test_a_zygote_is_waited_for_until_it_has_answered_everything() -> None:
    process = ZygoteProcess.__new__(ZygoteProcess)
    process.waiting_since, process._replies_due = 0.0, 0
    process.control, zygote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with process.control, zygote:
        process.send(["candidate", 2])
        process.send(["companion", 1])
        process.send(["end", [1], []])
        for _ in range(2):
            assert process.waiting_since
            zygote.send(b'["ended"]')
            assert process.receive() == ZygoteMessage("ended", [], [])
        assert process.waiting_since
        zygote.send(b'["ended"]')
        assert process.receive()
        assert not process.waiting_since


def test_an_event_whose_source_was_closed_earlier_in_the_same_round_is_passed_over() -> None:
    events = Events()
    called: list[int | str] = []
    first, second = os.pipe(), os.pipe()

    def replace(at: int) -> None:
        called.append(at)
        other = (first, second)[1 - at][0]
        events.unwatch(other)
        events.watch(other, lambda: called.append("new"))

    for at, (reader, writer) in enumerate((first, second)):
        events.watch(reader, partial(replace, at))
        os.write(writer, b".")
    events.dispatch(1)
    assert called in ([0], [1])  # the other's old event is not given to its new callback
    for descriptor in (*first, *second):
        os.close(descriptor)


def test_a_check_that_writes_rubbish_as_its_report_is_not_judged_and_harms_no_other() -> None:
    rubbish = "import os\nos.write(3, b'\\0\\0\\0\\2{]')"
    executions = judge_all([Job(task("f", rubbish), "def f(): return 1"), add(RIGHT)])
    assert [execution.verdict for execution in executions] == [Verdict.UNJUDGED, Verdict.PASS]


@pytest.mark.parametrize(
    ("name", "value"),
    [("checks", "5"), ("checks", '[["foo", ""]]'), ("failure", "7"), ("failure", '["pass", ""]'),
    ("failure", '["refused", ""]'), ("answers", "[7]"), ("worker_reusable", "1"),
    ("setup_error", "5"),
     ("output", "5")],
)  # fmt: skip
def test_a_forged_report_of_a_checks_own_ends_no_judge(name: str, value: str) -> None:
    whole = {
        "checks": '[["held", ""]]',
        "failure": "null",
        "setup_error": '""',
        "output": "null",
        "answers": "[]",
        "awaits_exit": "false",
        "worker_reusable": "true",
        "candidate_reusable": "false",
    }
    body = "{" + ", ".join(f'"{key}": {text}' for key, text in {**whole, name: value}.items()) + "}"
    forged = f"import os, struct\nos.write(3, struct.pack('!I', {len(body)}) + {body.encode()!r})"
    executions = judge_all([Job(task("f", forged), "def f(): return 1"), add(RIGHT)])
    assert [execution.verdict for execution in executions] == [Verdict.UNJUDGED, Verdict.PASS]


def test_a_report_without_end_is_not_read_into_the_supervisors_memory() -> None:
    flood = "import os, struct\nos.write(3, struct.pack('!I', 0xFFFFFFFF))\nb = bytes(1 << 20)\n"
    flood += "while True: os.write(3, b)"

    async def run() -> tuple[Execution, int]:
        async with Judge(Limits(wall_seconds=5), slots=1) as judge:
            execution = await judge.run(Job(task("f", flood), "def f(): pass"))
            status = Path(f"/proc/{judge.pid}/status").read_text()
            return execution, int(status.partition("VmHWM:")[2].split()[0])

    execution, peak = asyncio.run(run())
    assert (execution.verdict, execution.cause) == (Verdict.UNJUDGED, Cause.TEST)
    assert peak < 200 * 1024


def test_a_frame_that_is_too_large_ends_a_buffered_socket_and_others_are_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = BufferedSocket(ours, most=8)
        theirs.sendall(HEADER.pack(8) + b"12345678" + HEADER.pack(0))
        assert reader.receive() == [b"12345678", b""]
        assert reader.open
        theirs.sendall(HEADER.pack(9))
        assert reader.receive() == []
        assert not reader.open


def test_a_job_whose_input_finds_no_descriptor_is_the_machines_failure() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        candidate = CandidateProcess(0, 0, theirs, 0)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            _, stdout = candidate.start(Program(b"", b"1"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert stdout == -1
