"""No program that is started by exec gets out, and nothing of it stays."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.sandbox.limits import Limits
from assay.sandbox.processes import Executable
from assay.sandbox.program import Folder, Program, Result, command
from assay.sandbox.supervisor_client import Sandbox
from tests.attacks.native import NATIVE_ATTACKS, NativeAttack
from tests.judge.processes import named, staying
from tests.sandbox.test_launch import WITHOUT, walls_of, work_folders_left

EXECUTABLES: list[Executable] = []
"""They are there as long as these."""
RUNTIMES = ("program", "node", "sleep")
"""What attacks run as, and what they leave to sleep for ten minutes."""
LIMITS = Limits(cpu_seconds=1, wall_seconds=2, memory_mb=128, printed_mb=1)
pytestmark = [
    pytest.mark.skipif(not all(map(shutil.which, ("gcc", "node"))), reason="needs gcc, node"),
    pytest.mark.long,
]


def compiler(attack: NativeAttack) -> Program:
    argv = ["/usr/bin/gcc", "-w", "main.c", "-o", "program", "-lpthread"]
    folder = Folder({"main.c": attack.source.encode()}, ("program",))
    return command(argv, folder, starts_processes=True, runtime_mb=512, time_factor=10)


def prepared(attack: NativeAttack, made: Result | None) -> Program:
    if made is None:
        node = shutil.which("node") or ""
        return command(
            [node, "main.js"], Folder({"main.js": attack.source.encode()}), runtime_mb=512
        )
    assert "program" in made.files, (attack.name, made.stderr.decode())
    executable = Executable(made.files["program"])
    EXECUTABLES.append(executable)
    return command(["./program"])._replace(executable=executable.path)


@pytest.fixture(scope="module", params=WITHOUT)
def results(request: pytest.FixtureRequest) -> Iterator[dict[str, Result]]:
    walls = walls_of(request.param)
    before = named(*RUNTIMES)

    async def run() -> dict[str, Result]:
        sandbox = Sandbox("assay.judge.warmup")
        await sandbox.start(LIMITS, 2, walls)
        try:

            async def one(attack: NativeAttack) -> Result:
                made = await sandbox.run(compiler(attack)) if attack.language == "c" else None
                return await sandbox.run(prepared(attack, made))

            found = await asyncio.gather(*map(one, NATIVE_ATTACKS))
            return {
                attack.name: result for attack, result in zip(NATIVE_ATTACKS, found, strict=True)
            }
        finally:
            await sandbox.close()

    yield asyncio.run(run())
    assert not staying(RUNTIMES, before)
    assert work_folders_left() == []


@pytest.mark.parametrize("attack", NATIVE_ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_of_a_program_does_not_get_through(
    attack: NativeAttack, results: dict[str, Result]
) -> None:
    result = results[attack.name]
    if attack.name != "output without end":
        assert b"through" not in result.stdout, result
    assert not result.report, result


def test_the_machine_is_as_it_was(results: dict[str, Result]) -> None:
    assert results
    for path in ("/tmp/native", "/dev/shm/native", "/usr/bin/native", "/usr/include/native.h"):
        assert not Path(path).exists()
    assert Path("/usr/bin").stat().st_mtime > 0


def test_there_are_attacks_enough() -> None:
    assert len({attack.name for attack in NATIVE_ATTACKS}) == len(NATIVE_ATTACKS) >= 40
