"""No design passes a test bench without doing its work, and no tool is left running."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from dataclasses import replace

import pytest

from assay.judge import Job, Judge
from assay.sandbox.limits import Limits
from assay.types import Execution, Task, TestBench, Verdict
from tests.attacks.verilog import (
    ATTACKS,
    COUNTS,
    ENDINGS,
    KNOWS_ANSWERS,
    PEEKS,
    RIGHT,
    SELF_CHECKING,
    TASK,
)
from tests.judge.processes import alive, descendants

pytestmark = pytest.mark.skipif(not shutil.which("iverilog"), reason="needs iverilog")
LIMITS = Limits(cpu_seconds=0.5, wall_seconds=3, memory_mb=128, printed_mb=1)
SLOW = ("a loop", "a huge", "endless", "a generated")
"""What ends at a limit."""


def judged(task: Task, programs: dict[str, str]) -> dict[str, Execution]:
    """What comes of each, and whether anything still runs when all are judged."""

    async def run() -> dict[str, Execution]:
        before = {*descendants(os.getpid())}  # another test's may stay with this process
        async with Judge(LIMITS, slots=2) as judge:
            ends = await judge.all([Job(task, program) for program in programs.values()])
            own = [pid for pid in descendants(os.getpid()) if pid not in before]
        deadline = time.monotonic() + 5
        while alive(own) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        assert alive(own) == []
        return dict(zip(programs, ends, strict=True))

    return asyncio.run(run())


def test_an_attack_is_refused_or_wrong_and_says_why() -> None:
    quick = {name: text for name, text in ATTACKS.items() if not name.startswith(SLOW)}
    found = judged(TASK, {**quick, "right": RIGHT})
    assert found.pop("right").proven
    assert [name for name, one in found.items() if one.verdict is Verdict.PASS] == []
    assert [name for name, one in found.items() if not one.detail] == []
    refused = [name for name, one in found.items() if one.verdict is Verdict.FORBIDDEN]
    assert len(refused) == 38, sorted(set(found) - set(refused))


@pytest.mark.long
def test_what_never_ends_meets_a_limit() -> None:
    slow = {name: text for name, text in ATTACKS.items() if name.startswith(SLOW)}
    found = judged(TASK, slow)
    assert [name for name, one in found.items() if one.verdict is Verdict.PASS] == []


@pytest.mark.long
def test_without_the_screen_none_passes_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.judge.kinds.test_bench.refusal", lambda *_, **__: "")
    found = judged(TASK, {**ATTACKS, "right": RIGHT})
    assert found.pop("right").proven
    assert [name for name, one in found.items() if one.verdict is Verdict.PASS] == []


@pytest.mark.long
def test_a_bench_that_decides_itself_is_not_fooled_by_these_but_forgeable_anyway() -> None:
    check = TestBench(SELF_CHECKING, "TopModule", passes="Your Design Passed")
    task = replace(TASK, checks=(check,))
    found = judged(task, {**ATTACKS, "right": RIGHT})
    right = found.pop("right")
    assert (right.verdict, right.forgeable, right.proven) == (Verdict.PASS, True, False)
    assert [name for name, one in found.items() if one.verdict is Verdict.PASS] == []


def test_each_rule_of_the_screen_refuses_what_would_pass_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks = replace(TASK, checks=(TestBench(KNOWS_ANSWERS, "TopModule"),))
    ends = replace(TASK, checks=(TestBench(COUNTS, "TopModule", passes="Mismatches: 0"),))
    for task, designs in ((asks, PEEKS), (ends, ENDINGS)):
        refused = judged(task, {**designs, "right": RIGHT})
        assert refused.pop("right").verdict is Verdict.PASS
        assert {name: one.verdict for name, one in refused.items()} == dict.fromkeys(
            designs, Verdict.FORBIDDEN
        )
    monkeypatch.setattr("assay.judge.kinds.test_bench.refusal", lambda *_, **__: "")
    for task, designs in ((asks, PEEKS), (ends, ENDINGS)):
        for name, one in judged(task, designs).items():
            assert one.verdict is Verdict.PASS, (name, one.detail)
