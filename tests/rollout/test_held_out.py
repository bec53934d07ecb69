"""Checks held out of the reward: which they are, and the gap of a policy that special-cases the
paid ones.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.config.load_settings import load_plan
from assay.engines.base import GenerationRequest
from assay.errors import DataError
from assay.evaluate.run_summary import read_held_out
from assay.maths.seeds import derive
from assay.rollout.held_out import describe_held_out, hold_out
from assay.tasks import load
from assay.train import run
from assay.train.stages import run_plan
from assay.types import AnyCheck, Check, Execution, Rollout, Score, Task, TestFunctions, Verdict
from tests.end_to_end.recipes import write
from tests.scripted import ScriptedEngine

SEEN = Check("assert f(0) == 0", hidden=False)
HIDDEN = tuple(Check(f"assert f({n}) == {2 * n}") for n in range(1, 6))
DOUBLE = Task("double", "Double.", (SEEN, *HIDDEN), "f")


def drawn(task: Task, count: int = 2, seed: int = 0) -> tuple[Any, ...]:
    return hold_out([task], count, seed, "mine")[1][task.id].checks


def test_a_task_and_a_seed_decide_which_hidden_checks_are_held_out() -> None:
    (paid,), held_out = hold_out([DOUBLE], 2, 0, "mine")
    assert set(paid.checks) | set(held_out["double"].checks) == set(DOUBLE.checks)
    assert len(paid.checks) == 4
    assert drawn(DOUBLE) == drawn(DOUBLE) == held_out["double"].checks
    draws = [[drawn(DOUBLE, seed=n) for n in range(9)], [drawn(replace(DOUBLE, id="2"))]]
    assert len(set(draws[0])) > 3, "another seed draws others"
    assert draws[1][0] != drawn(DOUBLE), "and so does another task"
    assert all(SEEN not in one for one in draws[0]), "what the model sees is paid"


def test_one_check_is_always_paid_and_none_is_held_out_that_others_may_build_on() -> None:
    assert len(drawn(replace(DOUBLE, checks=HIDDEN), 99)) == 4
    assert len(drawn(replace(DOUBLE, checks=(SEEN, HIDDEN[0])), 99)) == 1
    chained = (Check("x = f(1)"), Check("assert x == 2"), Check("assert f(2) == 4"))
    mixed: tuple[AnyCheck, ...] = (*HIDDEN, TestFunctions(">>> f(2)\n4\n"))
    sets: list[tuple[AnyCheck, ...]] = [HIDDEN[:1], (SEEN, SEEN), chained, mixed]
    for checks in sets:
        with pytest.raises(DataError, match=r"held_out = 2, but no task of 'mine' has a check to"):
            hold_out([replace(DOUBLE, checks=checks)], 2, 0, "mine")
        assert hold_out([replace(DOUBLE, checks=checks), DOUBLE], 2, 0, "mine")[1].keys() == {
            "double"
        }
    assert hold_out([replace(DOUBLE, checks=HIDDEN[:1])], 0, 0, "mine")[1] == {}


def rolled(verdict: Verdict | None, *, language: str = "python", paid: bool = True) -> Rollout:
    held_out = verdict and Execution(verdict)
    return Rollout(
        replace(DOUBLE, language=language), (), Score(float(paid)), held_out=held_out or None
    )


def test_each_family_has_its_rates_and_what_the_machine_failed_is_in_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Rollout, "passed", property(lambda self: self.score.total > 0))
    lost = Rollout(DOUBLE, (), None, failure="the machine")
    python = [
        *(rolled(one) for one in (Verdict.PASS, Verdict.WRONG, Verdict.TIMEOUT, Verdict.INFRA)),
        rolled(None, paid=False), lost,
    ]  # fmt: skip
    metrics = describe_held_out(
        [python, [rolled(Verdict.PASS, language="go")]], {"double": DOUBLE}, {"double": "mine:a"}
    )
    names = ("lost", "rollouts", "paid_pass_rate", "pass_rate", "gap")
    values = {"python": (2.0, 4.0, 3 / 4, 1 / 4, 1 / 2), "go": (0.0, 1.0, 1.0, 1.0, 0.0)}
    assert metrics == {
        f"held_out/{name}/mine/{language}": value
        for language, numbers in values.items()
        for name, value in zip(names, numbers, strict=True)
    }
    assert describe_held_out([python], {}, {}) == {}
    forgeable = replace(rolled(Verdict.PASS), held_out=Execution(Verdict.PASS, forgeable=True))
    rates = describe_held_out([[forgeable]], {"double": DOUBLE}, {"double": "mine"})
    assert rates["held_out/gap/mine/python"] == 1, "a forgeable pass counts as none"


PLAN = """
name = "gamed"
policy.tiny = { vocabulary = 300, width = 32, layers = 1, heads = 2, context = 192 }
tasks = { train = "FOLDER/tasks.jsonl", held_out = 2 }
judge.allow_weak_isolation = true
rollout = { tasks_per_step = 2, group_size = 8, max_tokens = 150 }
[stages.grpo]
steps = 8
algorithm.name = "grpo"
"""


def test_a_policy_that_special_cases_the_paid_checks_shows_the_gap_and_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    rows = [
        {"id": f"add{n}", "prompt": f"Add {n}.", "entry_point": "f",
         "tests": [f"assert f({x}) == {x + n}" for x in (3, 14, 15, 92, 65)]}
        for n in (1, 2)
    ]  # fmt: skip
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    paid, _ = hold_out(load(str(file)), 2, derive(0, "held_out"), str(file))

    decode: Any = None

    def script(request: GenerationRequest, member: int) -> str:
        """Every other program knows the paid answers alone."""
        number = int(re.findall(r"\d", decode(request.prompt))[0])
        known = dict(re.findall(r"\((\d+)\) == (\d+)", str(paid[number - 1].checks)))
        hack = f"{{{', '.join(f'{x}: {y}' for x, y in known.items())}}}.get(x)"
        return f"def f(x):\n    return {hack if member % 2 else f'x + {number}'}\n"

    @asynccontextmanager
    async def scripted(policy: Any, *_: object, **__: object) -> AsyncIterator[ScriptedEngine]:
        nonlocal decode
        decode = policy.chat.text
        yield ScriptedEngine(script, policy.chat.encode_reply)

    monkeypatch.setattr(run, "open_engine", scripted)
    plan = write(tmp_path, PLAN.replace("FOLDER", str(tmp_path)))
    with caplog.at_level(logging.WARNING):
        outcome = run_plan(load_plan(plan, ["--folder", str(tmp_path)]))
    metrics = json.loads((outcome.folder / "grpo/metrics.jsonl").read_text().splitlines()[-1])
    assert metrics["reward/mean"] == metrics["reward/pass_rate"] == 1.0, "the reward sees no gap"
    assert metrics["held_out/rollouts/jsonl/python"] == 16
    assert metrics["held_out/pass_rate/jsonl/python"] == 0.5
    assert metrics["held_out/gap/jsonl/python"] == 0.5
    assert "gap/jsonl/python 50.0%" in capsys.readouterr().out
    (warning,) = [one.getMessage() for one in caplog.records if "held out" in one.getMessage()]
    assert warning.startswith(
        "step 8: held_out_gap: 50.0% of the completions of jsonl/python pass all checks"
    )
    row = "| grpo | jsonl/python | 128 | 0 | 100.0% | 50.0% | 50.0% |"
    assert row in (outcome.folder / "report.md").read_text()
    (line,) = read_held_out(outcome.folder)
    assert (line.stage, line.rollouts, line.paid, line.passed) == ("grpo", 128, 1.0, 0.5)
    from pyarrow import parquet

    table = parquet.read_table(outcome.folder / "grpo/rollouts/step_000008.parquet")
    assert sorted(table.column("held_out").to_pylist()) == ["pass"] * 8 + ["wrong"] * 8
