"""A client whose programs hold every slot does not hold up the others."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest

from assay.integrations import readers
from assay.judge import Job, Judge
from assay.sandbox import kernel
from assay.sandbox.fair_use import CLIENT
from assay.sandbox.limits import Limits
from assay.sandbox.slot import NICENESS
from assay.types import Verdict
from tests.judge.jobs import RIGHT as RIGHT_SUM
from tests.judge.jobs import add
from tests.judge.processes import descendants

RIGHT = "print(1)"
HOLDS = {
    "spins": "while True: pass",
    "sleeps": "import time\ntime.sleep(60)",
}
LIMITS = Limits(cpu_seconds=1.0, wall_seconds=3.0)


def as_client(name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start what a client asks for."""
    context = contextvars.copy_context()
    context.run(CLIENT.set, name)
    return asyncio.create_task(work, context=context)


async def served(slots: int, jobs: list[tuple[str, str]]) -> list[tuple[str, Verdict]]:
    """Who got an answer, and which, in the order of the answers, where clients send their programs
    in this order.
    """
    answers: list[tuple[str, Verdict]] = []

    async def ask(client: str, program: str) -> None:
        run = await judge.execute(program)
        answers.append((client, run.execution.verdict))

    async with Judge(LIMITS, slots) as judge:
        await as_client("light", ask("light", RIGHT))
        tasks = []
        for number, (client, program) in enumerate(jobs):
            if client == "light":
                await asyncio.sleep(0.3)  # so that the others' programs run
            tasks.append(as_client(client, ask(client, f"{program}\n# {number}")))
        await asyncio.gather(*tasks)
    return answers[1:]


def test_a_program_that_holds_a_slot_gives_way_and_keeps_its_verdict() -> None:
    jobs = [("hostile", HOLDS["spins"])] * 4 + [("light", RIGHT)]
    first, *others = asyncio.run(served(2, jobs))
    assert first == ("light", Verdict.PASS)
    assert others == [("hostile", Verdict.TIMEOUT)] * 4


def test_many_clients_that_hold_slots_do_not_hold_up_one_that_does_not() -> None:
    jobs = [(f"hostile {name}", program) for name, program in HOLDS.items()] * 2
    lights = [("light", RIGHT)] * 3
    answers = asyncio.run(served(2, [*jobs, *lights]))
    of_sleepers = [at for at, (client, _) in enumerate(answers) if client == "hostile sleeps"]
    assert all(at < min(of_sleepers) for at, answer in enumerate(answers) if answer[0] == "light")
    verdicts = dict(answers)
    assert verdicts == {
        "light": Verdict.PASS,
        "hostile spins": Verdict.TIMEOUT,
        "hostile sleeps": Verdict.TIMEOUT,
    }


def test_programs_of_a_client_that_is_not_known_to_use_little_let_others_go_first() -> None:
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    if usual + NICENESS > 19:
        pytest.skip("these tests go last themselves")

    def slowed(judge: Judge) -> list[int]:
        return [pid for pid in descendants(judge.pid) if niceness(pid) != usual]

    def niceness(pid: int) -> int:
        try:
            return os.getpriority(os.PRIO_PROCESS, pid)
        except ProcessLookupError:
            return usual

    def of_sessions(pids: list[int]) -> list[str]:
        """The niceness of their sessions, where Linux weighs these and we are root: the files of
        an undumpable process are root's.
        """
        if not kernel.weighs_sessions() or os.getuid() != 0:
            return [str(usual + NICENESS)] * len(pids)
        return [session_niceness(pid) for pid in pids]

    async def run() -> None:
        async with Judge(LIMITS, 2) as judge:
            await as_client("light", ask(judge, add(RIGHT_SUM)))
            assert slowed(judge) == []
            sleeps = add(f"import time\ntime.sleep(2)\n{RIGHT_SUM}")
            task = as_client("new", ask(judge, sleeps))
            while len(pids := slowed(judge)) < 2 and not task.done():
                await asyncio.sleep(0.02)
            assert len(pids) == 2, "the program, and the worker that tests it"
            while set(of_sessions(pids)) != {str(usual + NICENESS)}:
                assert not task.done(), "the sessions of both"
                await asyncio.sleep(0.02)
            await task
            await as_client("light", ask(judge, add(f"{RIGHT_SUM}# again")))
            assert slowed(judge) == [], "nobody else gets that worker"

    async def ask(judge: Judge, job: Job) -> None:
        await judge.run(job)

    asyncio.run(run())


@pytest.mark.skipif(not kernel.weighs_sessions(), reason="Linux weighs no sessions here")
def test_what_reads_large_requests_lets_others_go_first() -> None:
    wanted = min(os.getpriority(os.PRIO_PROCESS, 0) + readers.NICENESS, 19)
    body = b'{"program": "", "task": {"tests": ["assert f(1)"], "entry_point": "f"}}'

    async def run() -> None:
        pool = readers.Readers()
        before = set(descendants(os.getpid()))
        ask = partial(pool.read, "JudgeRequest", body, LIMITS, True)
        try:
            for _ in range(3):  # an ordinary user sets one session's each tenth of a second
                await asyncio.gather(ask(), ask())
                await asyncio.sleep(0.2)
            pids = set(descendants(os.getpid())) - before
            assert [session_niceness(pid) for pid in pids] == [str(wanted)] * 2
        finally:
            pool.close()

    asyncio.run(run())


def session_niceness(pid: int) -> str:
    return kernel.read_text(f"/proc/{pid}/autogroup").split(" ")[-1].strip()


def test_with_one_slot_a_client_waits_only_for_the_program_in_progress() -> None:
    jobs = [("hostile", HOLDS["spins"])] * 3 + [("light", RIGHT)]
    clients = [client for client, _ in asyncio.run(served(1, jobs))]
    assert clients.index("light") <= 1
