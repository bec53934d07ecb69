"""The judge behind a thread, and what it is worth to trainers that do not await."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from assay.errors import DataError, SandboxError
from assay.integrations.background import score, shared
from assay.judge import Job
from assay.types import Execution, Verdict
from tests.judge.jobs import RIGHT, add, task


def test_executions_come_in_the_order_of_the_jobs() -> None:
    jobs = [add("def add(a, b): return a - b"), add(RIGHT), add(None)] * 4
    found = [execution.verdict for execution in shared().run(jobs)]
    assert found == [Verdict.WRONG, Verdict.PASS, Verdict.NO_CODE] * 4


def test_who_asks_with_the_same_settings_shares_one_judge() -> None:
    assert shared() is shared()
    assert shared(slots=1) is not shared()


JUDGE_ONE = """
import os
from assay.integrations.background import BackgroundJudge
from tests.judge.jobs import RIGHT, add
from tests.integrations.server import descendants
judge = BackgroundJudge(slots=1)
judge.run([add(RIGHT)])
print(len(descendants(os.getpid())) >= 3, flush=True)
"""


def output_of(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_closed_judge_leaves_no_process() -> None:
    closing = "judge.close()\njudge.close()\nprint(len(descendants(os.getpid())))"
    assert output_of(JUDGE_ONE + closing) == ["True", "0"]


def test_nothing_is_left_or_said_when_python_ends() -> None:
    says, below = output_of(JUDGE_ONE + "print(*descendants(os.getpid()))")
    assert says == "True"
    assert not [pid for pid in below.split() if Path(f"/proc/{pid}").exists()]


def verdict_in_a_child(_: int) -> str:
    return shared(slots=1).run([add(RIGHT)])[0].verdict


def test_a_forked_child_has_a_judge_of_its_own() -> None:
    assert shared(slots=1).run([add(RIGHT)])[0].verdict is Verdict.PASS
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(verdict_in_a_child, range(4)) == ["pass"] * 4
    assert shared(slots=1).run([add(RIGHT)])[0].verdict is Verdict.PASS


def test_a_child_by_os_fork_ends_although_its_parents_judge_is_open() -> None:
    ending = "import os, signal, sys\njudge.run([add(RIGHT)])\nif not os.fork():\n"
    ending += "    signal.alarm(20)\n    sys.exit(3)\n"
    ending += "print(os.waitstatus_to_exitcode(os.wait()[1]), len(judge.run([add(RIGHT)])))"
    assert output_of(JUDGE_ONE + ending) == ["True", "3 1"]


def test_a_failure_of_the_machine_is_an_error_and_no_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Execution(Verdict.INFRA, detail="killed by SIGKILL")
    monkeypatch.setattr(shared(slots=1), "run", lambda jobs: [lost])
    with pytest.raises(SandboxError, match="row 3: the machine could not judge"):
        score("row 3", add(RIGHT), slots=1)


def test_a_faulty_task_is_the_users_to_mend_and_has_no_score() -> None:
    broken = task("f", "assert f() == 1", setup="1 / 0")
    with pytest.raises(
        DataError, match=r"row 3: the task cannot be judged \(task\): the task's setup"
    ):
        score("row 3", Job(broken, "def f(): return 1"), slots=1)
