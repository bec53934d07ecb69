"""Test scripts of work folders: what each sees, what its reward decides, and whose fault it is
where there is none.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from assay.bounded import BoundedDict
from assay.check import check
from assay.check.findings import Flaw
from assay.checks import TestScript
from assay.judge import Job
from assay.judge.kinds.find import kind_of
from assay.judge.kinds.repository_cheats import diff_of
from assay.judge.kinds.test_script import (
    CHANGES,
    HAS_REWARD,
    IN_FLIGHT,
    Key,
    ask_once,
    contents_of,
    of_rewards,
    rewards_in,
    tree_of_script,
)
from assay.rewards.tests import score_execution
from assay.sandbox.isolation import probe_isolation
from assay.tasks import exact, load
from assay.tasks.rows import Row
from assay.types import Cause, Execution, Task, Verdict
from tests.harbor_folders import TEST, harbor_folder, harbor_task
from tests.judge.opened import judge_all, take_walls_away

pytestmark = pytest.mark.skipif(
    "namespaces" not in probe_isolation().walls, reason="no namespaces here"
)


def judged(task: Task, *programs: str | None) -> list[Execution]:
    return judge_all([Job(task, program) for program in programs], stop_early=False)


def check_of(task: Task) -> TestScript:
    (check,) = task.checks
    assert isinstance(check, TestScript)
    return check


def change(task: Task, **files: str) -> str:
    """A program that gives files these texts; `_` in a name is a dot."""
    names = {name.replace("_", "."): text for name, text in files.items()}
    return diff_of(tree_of_script(check_of(task)), names)


def test_a_script_judges_what_a_change_makes_of_the_work_folder(tmp_path: Path) -> None:
    task = harbor_task(tmp_path)
    right, wrong, none, solution = judged(
        task, change(task, sum_txt="6\n"), change(task, sum_txt="7\n"), "", task.reference
    )
    assert (right.verdict, right.passed, right.total) == (Verdict.PASS, 1, 1)
    assert (right.forgeable, right.proven) == (True, False)
    assert (solution.verdict, solution.forgeable) == (Verdict.PASS, True)
    assert (wrong.verdict, wrong.passed, wrong.total) == (Verdict.WRONG, 0, 1)
    assert (none.verdict, none.cause) == (Verdict.WRONG, Cause.PROGRAM)
    assert "sum.txt: No such file" in none.output


def test_a_program_may_be_a_script_which_does_not_see_the_solution(tmp_path: Path) -> None:
    task = harbor_task(tmp_path)
    adds, copies, late = judged(
        task, "paste -sd+ numbers.txt | python3 -c 'print(eval(input()))' > sum.txt\n",
        "cp /solution/right.txt sum.txt || cp /tests/* .\n",
        "sleep 60 & echo 6 > sum.txt; echo 1 > /logs/reward.txt\n",
    )  # fmt: skip
    assert (adds.verdict, late.verdict) == (Verdict.PASS, Verdict.PASS)
    assert copies.verdict is Verdict.WRONG


def test_the_text_of_the_solution_does_not_see_its_files(tmp_path: Path) -> None:
    task = harbor_task(tmp_path)
    text = (tmp_path / "solution" / "solve.sh").read_text()
    solution, again, copied, called = judged(
        task, task.reference, f"{task.reference}\n", text, "/solution/solve.sh\n"
    )
    assert (solution.verdict, again.verdict) == (Verdict.PASS, Verdict.PASS)
    assert (copied.verdict, called.verdict) == (Verdict.WRONG, Verdict.WRONG)


def test_check_proves_a_folder_by_its_solution(tmp_path: Path) -> None:
    passes = {"tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n"}
    harbor_folder(tmp_path / "b-easy", **passes, **{"instruction.md": "Do it."})
    harbor_folder(tmp_path / "a-sum")
    harbor_folder(tmp_path / "c-off", **{"solution/right.txt": "7\n", "instruction.md": "Off."})
    flaws = [
        {finding.flaw for finding in report.findings} for report in check(f"harbor:{tmp_path}")
    ]
    assert flaws == [
        {Flaw.FORGEABLE},
        {Flaw.FORGEABLE, Flaw.EMPTY_PASSES, Flaw.RAISE_PASSES},
        {Flaw.REFERENCE_FAILS},
    ]


def test_the_time_of_a_script_is_the_tasks(tmp_path: Path) -> None:
    task = harbor_task(tmp_path, "sleep 60\n")
    check = replace(check_of(task), seconds=1.0, script_seconds=1.0)
    task = replace(task, checks=(check,), reference=None)
    slow, never = judged(task, "", "sleep 60\n")
    for execution in (slow, never):
        assert (execution.verdict, execution.cause) == (Verdict.TIMEOUT, Cause.LIMIT)


SEES = """
test "$PWD" = /app && test "$WHO" = tester && test "$ALL" = task &&
  test ! -e /solution && test ! -w /app/../etc && test -x /tests/tool && /tests/tool &&
  touch /logs/agent/x /logs/artifacts/x /tests/x && echo 1 > /logs/verifier/reward.txt
"""
VARIABLES = '[verifier.env]\nWHO = "tester"\n[environment.env]\nALL = "${NOWHERE:-task}"\n'


def test_a_script_runs_in_the_work_folder_with_its_files_and_variables(tmp_path: Path) -> None:
    task = harbor_task(tmp_path, SEES, **{"task.toml": VARIABLES, "tests__tool": "#!/bin/sh\n"})
    (tmp_path / "tests" / "tool").chmod(0o755)
    (execution,) = judged(task, "")
    assert execution.verdict is Verdict.PASS, execution.output


def test_a_script_may_be_of_another_program_than_bash(tmp_path: Path) -> None:
    text = "#!/usr/bin/env python3\nopen('/logs/verifier/reward.txt', 'w').write('1.0')\n"
    (execution,) = judged(harbor_task(tmp_path, text), "")
    assert execution.verdict is Verdict.PASS


REWARDS = [
    ("reward.txt", "1\n", Verdict.PASS, 1, 1),
    ("reward.txt", " 1.5 ", Verdict.PASS, 1, 1),
    ("reward.txt", "0.25", Verdict.WRONG, 25, 100),
    ("reward.txt", "0.29", Verdict.WRONG, 29, 100),
    ("reward.txt", "0.999999", Verdict.WRONG, 99, 100),
    ("reward.txt", "-1", Verdict.WRONG, 0, 1),
    ("reward.json", '{"reward": 1}', Verdict.PASS, 1, 1),
    ("reward.json", '{"reward": 0.5, "speed": 2}', Verdict.WRONG, 50, 100),
    ("reward.json", '{"tests": 1.0, "style": 0.1}', Verdict.WRONG, 10, 100),
]


@pytest.mark.parametrize(("name", "text", "verdict", "passed", "total"), REWARDS)
def test_a_reward_is_the_verdict(
    name: str, text: str, verdict: Verdict, passed: int, total: int
) -> None:
    execution = of_rewards(rewards_in(text, is_json=name.endswith("json")))
    assert (execution.verdict, execution.passed, execution.total) == (verdict, passed, total)
    paid = replace(execution, forgeable=False)
    share = 1.0 if verdict is Verdict.PASS else passed / total
    assert score_execution(paid, fraction=True) == share
    assert execution.forgeable is (passed > 0)


def test_each_reward_of_a_table_is_a_test(tmp_path: Path) -> None:
    script = 'echo \'{"tests": 1, "style": 0.5}\' > /logs/verifier/reward.json; exit 3\n'
    (execution,) = judged(harbor_task(tmp_path, script), "")
    assert [(test.name, test.holds, test.detail) for test in execution.tests] == [
        ("tests", True, "1"), ("style", False, "0.5")
    ]  # fmt: skip


BROKEN = {
    "none": "true\n",
    "an empty one": "> /logs/verifier/reward.txt\n",
    "words": "echo good > /logs/verifier/reward.txt\n",
    "no number": "echo nan > /logs/verifier/reward.txt\n",
    "beyond numbers": "echo 1e999 > /logs/verifier/reward.txt\n",
    "a huge one": "head -c 100000000 /dev/zero | tr '\\0' 1 > /logs/verifier/reward.txt\n",
    "a folder": "mkdir /logs/verifier/reward.txt\n",
    "a pipe": "mkfifo /logs/verifier/reward.txt\n",
    "a device": "ln -s /dev/zero /logs/verifier/reward.txt\n",
    "a link to nothing": "ln -s /nothing /logs/verifier/reward.txt\n",
    "a list": "echo [1] > /logs/verifier/reward.json\n",
    "an empty table": "echo {} > /logs/verifier/reward.json\n",
    "a table of words": 'echo \'{"reward": "1"}\' > /logs/verifier/reward.json\n',
    "a deep one": "python3 -c 'print(\"[\" * 30000)' > /logs/verifier/reward.json\n",
    "a long number": "python3 -c 'print(\"9\" * 60000)' > /logs/verifier/reward.json\n",
    "a table beside a number": "cd /logs/verifier; echo x > reward.json; echo 1 > reward.txt\n",
    "a removed folder": "rm -r /logs/verifier; echo 1 > /logs/verifier\n",
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_script_that_gives_the_solution_no_reward_either_is_the_tasks_fault(
    what: str, tmp_path: Path
) -> None:
    (execution,) = judged(harbor_task(tmp_path, BROKEN[what]), "")
    assert (execution.verdict, execution.cause) == (Verdict.UNJUDGED, Cause.TASK)


@pytest.mark.parametrize("what", ["none", "a huge one", "a table beside a number"])
def test_where_the_solution_gets_a_reward_none_is_the_programs_fault(
    what: str, tmp_path: Path
) -> None:
    script = f"if [ -e sum.txt ]; then echo 1 > /logs/verifier/reward.txt; exit; fi\n{BROKEN[what]}"
    none, right = judged(task := harbor_task(tmp_path, script), "", task.reference)
    assert (none.verdict, none.cause) == (Verdict.ERROR, Cause.PROGRAM)
    assert right.verdict is Verdict.PASS


def test_without_a_solution_no_reward_is_the_programs_fault(tmp_path: Path) -> None:
    (execution,) = judged(harbor_task(tmp_path, "true\n", **{"solution__solve.sh": None}), "")
    assert (execution.verdict, execution.cause) == (Verdict.ERROR, Cause.PROGRAM)


def test_a_solution_that_fails_makes_failures_unjudged(tmp_path: Path) -> None:
    task = harbor_task(tmp_path, **{"solution__right.txt": "7\n"})
    wrong, solution = judged(task, "", task.reference)
    assert solution.verdict is Verdict.WRONG
    assert (wrong.verdict, wrong.cause) == (Verdict.UNJUDGED, Cause.REFERENCE)


def test_a_solution_whose_change_is_too_large_is_no_fault_of_programs(tmp_path: Path) -> None:
    solve = "head -c 40000000 /dev/urandom > big; echo 6 > sum.txt\n"
    task = harbor_task(tmp_path, **{"solution/solve.sh": solve})
    right, solution = judged(task, change(task, sum_txt="6\n"), task.reference)
    assert right.verdict is Verdict.PASS
    assert solution.verdict is Verdict.ERROR
    assert "the solution: error: diff in a box" in solution.detail


def test_a_solution_without_a_diff_is_run_once_and_keeps_its_own_files(tmp_path: Path) -> None:
    """Its paths are known all the same: others are taken out."""
    solve = "head -c 40000000 /dev/urandom > big; touch sitecustomize.py; echo 6 > sum.txt\n"
    shows = f"ls -A\n{TEST}"
    task = harbor_task(tmp_path, shows, **{"solution/solve.sh": solve})
    CHANGES.clear()
    both = "echo 6 > sum.txt; touch sitecustomize.py usercustomize.py"
    first, second = judged(task, f"{both}\n", f"{both};\n")
    for execution in (first, second):
        assert execution.verdict is Verdict.PASS
        assert "sitecustomize.py" in execution.output
        assert "usercustomize.py" not in execution.output
    (found,) = CHANGES.values()
    assert found.fault is not None
    assert {"big", "sum.txt"} < found.paths


DIFF = """diff --git a/sum.txt b/sum.txt
new file mode 100644
--- /dev/null
+++ b/sum.txt
@@ -0,0 +1 @@
+6
"""


def test_a_reference_may_be_a_diff_where_there_is_no_solution(tmp_path: Path) -> None:
    without: dict[str, str | None] = {"solution/solve.sh": None, "solution/right.txt": None}
    (task,) = load(f"harbor:{harbor_folder(tmp_path, **without)}")
    task = replace(task, reference=DIFF)
    right, again, none = judged(task, DIFF, f"{DIFF}\n", "")
    assert (right.verdict, again.verdict) == (Verdict.PASS, Verdict.PASS)
    assert (none.verdict, none.cause) == (Verdict.WRONG, Cause.PROGRAM)


def test_what_a_solution_does_is_found_once_for_all_who_ask(tmp_path: Path) -> None:
    check, asked = check_of(harbor_task(tmp_path)), list[str]()
    store: BoundedDict[Key, str] = BoundedDict(8, 1)

    async def find() -> str:
        asked.append("once")
        await asyncio.sleep(0.1)
        return "found"

    async def edit() -> str:
        (tmp_path / "solution" / "right.txt").write_text("8\n")
        return "of both"

    async def ask() -> None:
        answers = await asyncio.gather(*(ask_once(store, check, "", find) for _ in range(3)))
        assert (answers, asked, len(store)) == (["found"] * 3, ["once"], 1)
        assert await ask_once(store, check, "other", edit) == "of both"
        assert len(store) == 1, "what changed meanwhile is not kept"

    asyncio.run(ask())
    assert not IN_FLIGHT


def test_a_machine_without_namespaces_is_no_failure_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_walls_away(monkeypatch, "C")
    (execution,) = judged(harbor_task(tmp_path), "")
    assert (execution.verdict, execution.cause) == (Verdict.INFRA, Cause.MACHINE)
    assert "needs namespaces" in execution.detail


def test_a_verdict_is_of_the_contents_of_all_folders(tmp_path: Path) -> None:
    task = harbor_task(tmp_path)
    before = contents_of(check_of(task))
    for path in ("tests/total.py", "solution/right.txt", "environment/numbers.txt"):
        (tmp_path / path).write_text("0\n")
        assert before != (before := contents_of(check_of(task))), path
    assert kind_of(task.checks[0]).surroundings(task.checks[0]) == before


def test_what_solutions_do_is_kept_by_what_they_read(tmp_path: Path) -> None:
    task = harbor_task(tmp_path)
    CHANGES.clear()
    HAS_REWARD.clear()
    judged(task, "", change(task, sum_txt="6\n"))
    (key,) = CHANGES
    assert CHANGES[key].paths == {"sum.txt"}
    assert key == (task.checks[0], task.reference, contents_of(check_of(task)))
    assert not HAS_REWARD, "every program had a reward"


def test_a_task_stays_itself_as_a_row(tmp_path: Path) -> None:
    task = harbor_task(tmp_path)
    row = json.loads(json.dumps(exact.row_of(task)))
    assert exact.task_of(Row(row, "rows.jsonl, line 1")) == task


def test_the_script_sees_no_more_of_a_change_than_files_of_the_work_folder(tmp_path: Path) -> None:
    """What a shell starts, writes elsewhere or names by links stays in the first box."""
    task = harbor_task(tmp_path, f"ls -A /logs /tests /tmp; ls -l\n{TEST}")
    (execution,) = judged(
        task, "echo 6 > sum.txt; mkfifo pipe; touch ~/.bashrc /tmp/x; ln -s /tests t; sleep 99 &\n"
    )
    assert execution.verdict is Verdict.PASS
    assert "/tmp:\ntotal " in execution.output
    assert "pipe" not in execution.output
    assert "t -> /tests" in execution.output
