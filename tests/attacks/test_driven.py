"""No program passes the calls of its function without computing what is asked, and none stays."""

from __future__ import annotations

import pytest

from assay.judge import Job, judge_all
from assay.sandbox.limits import Limits
from assay.types import Call, Execution, Task, Verdict
from tests.attacks.driven import ATTACKS, HONEST
from tests.judge.opened import take_walls_away
from tests.judge.processes import named, staying
from tests.judge.test_languages import INSTALLED
from tests.sandbox.test_launch import work_folders_left

CALLS = (Call("[3]", "10"), Call("[-4]", "17"), Call("[10]", "101"))
RUNTIMES = ("program", "node", "java", "sleep")
LIMITS = Limits(cpu_seconds=2, wall_seconds=5)
SPOILED = (
    "an answer too many", "half an answer", "deep answers", "a global destructor", "at exit",
    "a shutdown hook",
)  # fmt: skip


@pytest.mark.skipif("javascript" not in INSTALLED, reason="needs node")
@pytest.mark.parametrize(("tier", "mb"), [("A", 240), ("A", 60), ("C", 60)])
def test_answers_that_fill_the_folder_are_the_programs_failure_and_never_read(
    monkeypatch: pytest.MonkeyPatch, tier: str, mb: int
) -> None:
    take_walls_away(monkeypatch, tier)
    execution = filled(mb)
    assert (execution.verdict, execution.passed) == (Verdict.OUTPUT, 0), execution
    assert "16 MiB" in execution.detail


@pytest.mark.skipif("javascript" not in INSTALLED, reason="needs node")
def test_nor_are_those_that_no_file_can_hold_where_there_are_no_namespaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take_walls_away(monkeypatch, "C")
    execution = filled(240)
    assert (execution.verdict, execution.passed) == (Verdict.ERROR, 0), execution


def filled(mb: int) -> Execution:
    """What comes of a right program that makes its answers this large at its end."""
    right = "const fs = require('fs'), f = (x) => x * x + 1;\n"
    fills = right + f"process.on('exit', () => fs.truncateSync('answers', {mb} * 2 ** 20))"
    task = Task("full", "", CALLS, "f", language="javascript")
    (execution,) = judge_all([Job(task, fills)], LIMITS)
    return execution


@pytest.mark.long
@pytest.mark.parametrize("language", [name for name in ATTACKS if name in INSTALLED])
def test_no_attack_on_calls_passes_and_nothing_is_left(language: str) -> None:
    before = named(*RUNTIMES)
    task = Task(language, "", CALLS, "f", language=language)
    attacks = ATTACKS[language]
    honest, *executions = judge_all(
        [Job(task, source) for source in (HONEST[language], *attacks.values())], LIMITS,
        stop_early=False,
    )  # fmt: skip
    assert honest.proven, honest
    assert len(attacks) >= 7
    for name, execution in zip(attacks, executions, strict=True):
        assert execution.verdict not in (Verdict.PASS, Verdict.INFRA, Verdict.UNJUDGED), name
        if name in SPOILED:
            assert (execution.verdict, execution.passed) == (Verdict.FORBIDDEN, 0), name
    assert not staying(RUNTIMES, before)
    assert work_folders_left() == []
