"""No program passes the calls of its function without computing what is asked, and none stays."""

from __future__ import annotations

import pytest

from assay.judge import Job, judge_all
from assay.sandbox.limits import Limits
from assay.types import Call, Task, Verdict
from tests.attacks.driven import ATTACKS, HONEST
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
def test_answers_that_fill_the_folder_are_the_programs_failure_and_never_read() -> None:
    right = "const fs = require('fs'), f = (x) => x * x + 1;\n"
    fills = right + "process.on('exit', () => fs.truncateSync('answers', 240 * 2 ** 20))"
    task = Task("full", "", CALLS, "f", language="javascript")
    (execution,) = judge_all([Job(task, fills)], LIMITS)
    assert (execution.verdict, execution.passed) == (Verdict.OUTPUT, 0), execution
    assert "16 MiB" in execution.detail


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
