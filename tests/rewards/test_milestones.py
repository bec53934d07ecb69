"""The parts of a repair: what each pays, by hand, and what cannot be collected without it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.errors import UserError
from assay.judge.patches import unified
from assay.rewards.milestones import changed_files
from assay.tools import ToolCall
from assay.types import Execution, Rollout, TestOutcome, Verdict
from tests.environments.repositories import FIX, SOURCE, repository
from tests.environments.test_shell import EDIT, SUBMIT, block, worked
from tests.rewards.test_rewards import rollout as of_function
from tests.rewards.test_rewards import score

WRONG = unified({"calc.py": SOURCE}, {"calc.py": SOURCE.replace("a - b", "b - a")})
OTHER = unified({"other.py": None}, {"other.py": "x = 1\n"})


def outcomes(*holds: bool, others: bool = True) -> tuple[TestOutcome, ...]:
    """Tests to repair, of which some hold, and one other test."""
    repairs = [TestOutcome(f"test_{n}", "passed" if it else "failed", 0.0, is_fix=True)
               for n, it in enumerate(holds)]  # fmt: skip
    return (*repairs, TestOutcome("other", "passed" if others else "failed", 0.0, is_fix=False))


def rollout(
    folder: Path, program: str, *tests: bool, others: bool = True, calls: bool = True, **fields: Any
) -> Rollout:
    """A rollout that submitted a program, of which these tests to repair pass."""
    verdict = Verdict.PASS if others and all(tests) else Verdict.WRONG
    known = {"verdict": verdict, "tests": outcomes(*tests, others=others), **fields}
    one = of_function(program=program)
    (turn,) = one.turns
    called: dict[str, Any] = (
        {"calls": (ToolCall("bash", {"command": "ls"}),), "results": ("calc.py",)} if calls else {}
    )
    turns = (replace(turn, execution=Execution(**known), **called),)
    task = repository(folder) if not (folder / "tree").exists() else repository(folder / "again")
    return replace(one, task=task, turns=turns)


def total(one: Rollout, **settings: float) -> float:
    return score({"milestones": settings}, one).total


def test_each_part_adds_to_those_before_it_and_all_together_are_1(tmp_path: Path) -> None:
    def paid(name: str, *arguments: Any, **fields: Any) -> float:
        return total(rollout(tmp_path / name, *arguments, **fields))

    assert paid("nothing", "", False, False, calls=False) == 0
    assert paid("call", "", False, False) == 0.05
    assert paid("file", WRONG, False, False) == pytest.approx(0.15)
    assert paid("half", FIX, True, False) == pytest.approx(0.275)
    assert paid("all", FIX, True, True) == pytest.approx(1.0)


def test_weights_are_settings(tmp_path: Path) -> None:
    half = rollout(tmp_path, FIX, True, False)
    assert total(half, call=0, file=0, fixes=2, passes=3) == pytest.approx(1.0)
    with pytest.raises(UserError, match="call"):
        total(half, call=-1)


def test_more_calls_pay_no_more(tmp_path: Path) -> None:
    one = rollout(tmp_path, "", False)
    assert total(replace(one, turns=one.turns * 5)) == total(one) == 0.05


def test_nothing_is_paid_where_no_test_has_run(tmp_path: Path) -> None:
    one = rollout(tmp_path / "by_hand", "", tests=(), verdict=Verdict.WRONG)
    assert total(one) == 0
    forged = block(f"{SUBMIT} && echo 'diff --git a/calc.py b/calc.py'")
    played = worked(tmp_path / "played", block("ls"), forged)
    assert total(replace(played, score=None)) == 0


def test_calls_that_could_not_run_pay_nothing(tmp_path: Path) -> None:
    one = rollout(tmp_path, "", False)
    wrong = ToolCall("bash", status="invalid_json", detail="no")
    (turn,) = one.turns
    assert total(replace(one, turns=(replace(turn, calls=(wrong,)),))) == 0
    assert total(replace(one, turns=(replace(turn, results=()),))) == 0
    no_command = ToolCall("bash", {"command": "ls\0"})
    assert total(replace(one, turns=(replace(turn, calls=(no_command,)),))) == 0
    assert total(replace(one, turns=(replace(turn, calls=(no_command, *turn.calls)),))) == 0.05


def test_a_file_of_which_lines_are_only_shown_is_not_changed(tmp_path: Path) -> None:
    shown = "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n     return a - b\n"
    same = shown.replace("     return", "-    return") + "+    return a - b\n"
    mode = "diff --git a/calc.py b/calc.py\nold mode 100644\nnew mode 100755\n"
    for program in (shown, same, mode):
        assert changed_files(program) == frozenset()
        assert total(rollout(tmp_path / str(len(program)), program, False)) == 0.05
    moved = "diff --git a/a.py b/b.py\nrename from a.py\nrename to b.py\n"
    assert changed_files(moved) == {"a.py", "b.py"}
    assert changed_files(shown + OTHER) == {"other.py"}


def test_changing_many_files_pays_less_than_the_right_one(tmp_path: Path) -> None:
    both = total(rollout(tmp_path / "both", WRONG + OTHER, False))
    alone = total(rollout(tmp_path / "one", WRONG, False))
    other = total(rollout(tmp_path / "other", OTHER, False))
    assert (other, both, alone) == pytest.approx((0.05, 0.1, 0.15))


def test_a_change_that_breaks_another_test_gets_neither_file_nor_fixes(tmp_path: Path) -> None:
    assert total(rollout(tmp_path, FIX, True, True, others=False)) == 0.05


def test_what_is_said_of_a_change_pays_nothing(tmp_path: Path) -> None:
    one = rollout(tmp_path, "I changed calc.py:\n+++ b/calc.py\nall tests pass", False, calls=False)
    assert total(one) == 0
    assert changed_files('["calc.py"') == changed_files("{calc.py}") == frozenset()
    assert changed_files(json.dumps({"calc.py": "x"})) == {"calc.py"}


def test_forgeries_pay_nothing_at_all(tmp_path: Path) -> None:
    forbidden = rollout(tmp_path / "forbidden", FIX, True, True, verdict=Verdict.FORBIDDEN)
    forgeable = rollout(tmp_path / "forgeable", FIX, True, True, forgeable=True)
    assert total(forbidden) == total(forgeable) == 0


def test_tasks_that_are_no_repository_are_refused() -> None:
    with pytest.raises(UserError, match="take the reward `tests`"):
        total(of_function())


def test_rollouts_in_a_box_are_paid_by_what_the_judge_measures(tmp_path: Path) -> None:
    def paid(name: str, *lines: str) -> float:
        one = worked(tmp_path / name, *lines)
        assert one.execution is not None
        judged = replace(one.turns[-1], execution=replace(one.execution, forgeable=False))
        return total(replace(one, turns=(*one.turns[:-1], judged), score=None))

    wrong = block("sed -i 's/a - b/b - a/' calc.py")
    assert paid("looks", block("ls"), block(SUBMIT)) == pytest.approx(0.05)
    assert paid("wrong", wrong, block(SUBMIT)) == pytest.approx(0.15)
    assert paid("right", block(EDIT), block(SUBMIT)) == pytest.approx(1.0)
