"""Programs in q, run by a stand-in for its interpreter (stand_in.py)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from assay.doctor import tools_of
from assay.errors import DataError
from assay.judge import Job, Judge, judge_all
from assay.sandbox.limits import Limits
from assay.types import Exchange, Execution, PrintTest, Task, Verdict
from tests.q.conftest import forget_q

TWICE = Task(
    "twice",
    "Twice a number.",
    (PrintTest("show solve[21]", "42"), PrintTest("show solve[1 2 3]", "2 4 6\n")),
    "solve",
    language="q",
)
RIGHT = "solve:{[x]\n  2*x\n  }"
PROGRAMS = {
    "right": (RIGHT, Verdict.PASS, 2),
    "right, and exits at its end": (f"{RIGHT};\nexit 0;\n\\\\\n", Verdict.PASS, 2),
    "right once": ("solve:{42}", Verdict.WRONG, 1),
    "an error": ("solve:{x-`a}", Verdict.ERROR, 0),
    "not a program": ("solve:{[x", Verdict.ERROR, 0),
    "nothing": ("", Verdict.ERROR, 0),
}


def judged(task: Task, *programs: str) -> list[Execution]:
    limits = Limits(cpu_seconds=0.5, printed_mb=1)

    async def run() -> list[Execution]:
        async with Judge(limits, slots=2, stop_early=False) as judge:
            return await judge.all([Job(task, program) for program in programs])

    return asyncio.run(run())


def test_a_program_passes_where_the_test_code_prints_the_right_text(any_q: None) -> None:
    found = judged(TWICE, *(source for source, *_ in PROGRAMS.values()))
    for (name, (_, verdict, passed)), one in zip(PROGRAMS.items(), found, strict=True):
        assert (one.verdict, one.passed, one.total) == (verdict, passed, 2), (name, one)
        assert not one.forgeable
    assert found[3].detail == "test 1: exited with status 1: 'type"
    assert "has started" not in found[3].stderr


def test_a_q_that_is_absent_is_asked_for_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_Q", "/nowhere/q")
    forget_q()
    with pytest.raises(DataError, match=r"ASSAY_Q is /nowhere/q, .* a licence of your own from KX"):
        judge_all([Job(TWICE, RIGHT)])
    monkeypatch.delenv("ASSAY_Q")
    monkeypatch.setenv("PATH", "/nowhere")
    forget_q()
    assert tools_of("q").startswith("q is not installed; get q and a licence of your own from KX")
    forget_q()


def test_the_doctor_tells_the_version_of_q(q: Path) -> None:
    assert tools_of("q") == "4.1"


@pytest.mark.long
def test_a_licence_that_fails_is_the_machines_failure_and_is_tried_again(q: Path) -> None:
    licence = q / "k4.lic"
    assert tools_of("q") == "4.1", "a judge asks for it once"
    try:
        licence.write_text(str(time.time() + 0.6))  # a daemon that is back before the second try
        assert judged(TWICE, RIGHT)[0].verdict is Verdict.PASS
        licence.unlink()
        (gone,) = judged(TWICE, RIGHT)
        assert gone.verdict is Verdict.INFRA
        assert gone.detail == "test 1: q did not start: '2026.11.23T00:00:00.000 k4.lic"
    finally:
        licence.write_text("")


def test_a_program_that_only_reads_and_prints_may_be_q(any_q: None) -> None:
    echo = Task("echo", "", (Exchange("abc\n", "abc"),), "", language="q")
    assert judged(echo, "-1 read0 0;")[0].verdict is Verdict.PASS
