"""Servers and the trainer are killed: no completion is lost or comes twice, no process stays."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.engines.base import GenerationRequest, Sampling
from assay.engines.vllm.server import ServerProcess
from assay.errors import MachineError
from tests.engines.vllm.conftest import Desk, at_desk

pytestmark = pytest.mark.vllm


def children_of(pid: int) -> list[int]:
    """All descendants, the nearest first."""
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [other for child in found for other in children_of(child)]


def reaper_of(process: ServerProcess) -> int:
    assert process._reaper
    return process._reaper.pid


def test_when_one_of_two_servers_is_killed_every_completion_comes_once_and_exact(
    tmp_path: Path,
) -> None:
    with at_desk(tmp_path, servers=2) as desk:
        _one_of_two_is_killed(desk)
    assert {file.name for file in tmp_path.glob("vllm*.log")} == {"vllm.log", "vllm-1.log"}


def _one_of_two_is_killed(desk: Desk) -> None:
    first = desk.engine._fleet.servers[0].process
    assert first
    desk.run(desk.move())
    prompts = [(5 + n, 6, 7, 8) for n in range(10)] * 20
    before = desk.engine._fleet.restarts

    async def kill_meanwhile() -> list[list[int]]:
        victim = next(
            pid
            for pid in children_of(reaper_of(first))
            if "Engine" in Path(f"/proc/{pid}/comm").read_text()
        )
        os.kill(victim, signal.SIGSTOP)  # otherwise a fast machine finishes before the kill
        work = asyncio.create_task(desk.generate(prompts, Sampling(150)))
        server = desk.engine._fleet.servers[0]
        while not server.assigned or server.generating < server.assigned:
            await asyncio.sleep(0.01)
        shares = [set(server.prompts) for server in desk.engine._fleet.servers]
        assert shares[1]
        assert not shares[0] & shares[1], "equal prompts go to one server"
        os.kill(victim, signal.SIGCONT)
        time.sleep(0.02)
        os.kill(victim, signal.SIGKILL)
        written = await work
        await desk.engine._fleet.servers[0].ready.wait()
        return written  # type: ignore[return-value]

    written = desk.run(kill_meanwhile())
    assert desk.engine._fleet.restarts == before + 1
    assert len(written) == 200
    for prompt, completion in zip(prompts, written, strict=True):
        assert desk.off(prompt, completion).max() < 1e-4
        assert (
            len(completion.tokens) == 150 or completion.tokens[-1] in desk.policy.chat.stop_tokens
        )
    again = desk.run(desk.generate(prompts[:20], Sampling(10)))
    assert all(
        desk.off(prompt, completion).max() < 1e-4
        for prompt, completion in zip(prompts, again, strict=False)
    )


TRAINER = """
import asyncio, sys
from pathlib import Path
from tests.engines.vllm.conftest import SETTINGS
from tests.policies import tiny_policy
from assay.engines.vllm.engine import open_vllm

async def main():
    folder = Path(sys.argv[1])
    policy = tiny_policy(folder)
    async with open_vllm(policy, SETTINGS, folder, 0) as engine:
        await engine.load(policy, 0)
        print(engine._fleet.servers[0].process._reaper.pid, engine._folder, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_when_the_trainer_is_killed_no_process_of_the_server_is_left(
    tmp_path: Path, number: int
) -> None:
    command = [sys.executable, "-c", TRAINER, str(tmp_path)]
    trainer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert trainer.stdout
    reaper, folder = trainer.stdout.readline().split()
    family = [int(reaper), *children_of(int(reaper))]
    assert len(family) >= 4, "the reaper, vLLM's front, its core, its worker"
    assert len(list(Path(folder).glob("*-*"))) >= 1, "vLLM's own sockets lie there"
    trainer.send_signal(number)
    trainer.wait(60)
    for _ in range(300):
        left = [pid for pid in family if Path(f"/proc/{pid}/stat").exists()]
        if not left and not Path(folder).exists():
            return
        time.sleep(0.1)
    raise AssertionError((left, folder))


def test_a_server_that_dies_three_times_in_a_row_ends_the_run_with_its_last_log_line(
    adapted: Desk,
) -> None:
    process = adapted.engine._fleet.servers[0].process
    assert process

    async def kill_again_and_again() -> None:
        while True:
            os.kill(reaper_of(process), signal.SIGTERM)
            await asyncio.sleep(0.3)

    async def write() -> None:
        killing = asyncio.create_task(kill_again_and_again())
        try:
            await adapted.engine.generate(GenerationRequest((5,), 0), Sampling(5))
        finally:
            killing.cancel()

    with pytest.raises(
        MachineError,
        match=r"a vLLM server died 3 times in a row: .*the last line of .*vllm\.log is: ",
    ):
        adapted.run(write())
