"""A run whose evaluation loses completions says so, and evaluates again when it resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from assay.cli import app, explain
from assay.judge import Job, Judge
from assay.types import Execution, Verdict
from tests.train.test_stages import PLAN


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """The judge loses every second task of the evaluation while this says so."""
    state, run, seen = {"loses": True}, Judge.run, dict[str, bool]()

    async def judge(self: Judge, job: Job) -> Execution:
        lost = seen.setdefault(job.task.id, len(seen) % 2 == 0)
        if state["loses"] and lost:
            return Execution(Verdict.INFRA, detail="a process was killed")
        return await run(self, job)

    monkeypatch.setattr(Judge, "run", judge)
    return state


def train(folder: Path, *words: str) -> Result:
    (folder / "plan.toml").write_text(PLAN.replace("before = true", "before = false"))
    fixed = ("--folder", str(folder / "runs"), "--trackers", '["console", "jsonl"]')
    return CliRunner().invoke(app, ["train", str(folder / "plan.toml"), *fixed, *words])


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_run_that_loses_completions_of_its_evaluation_says_so_and_evaluates_again(
    tmp_path: Path, losing: dict[str, bool]
) -> None:
    best = ("--save.best", "evaluate/pass@1", "--save.every", "1", "--evaluate.every", "1")
    done = train(tmp_path, *best)
    assert isinstance(done.exception, Exception)
    line, code = explain(done.exception)
    assert (code, "1 of 2 completions" in line) == (3, True)
    assert "lost 1" in done.output
    assert "1 of 2" in done.output
    stage = tmp_path / "runs/run/first"
    assert lines(stage / "metrics.jsonl")[-1]["evaluate/lost"] == 1
    assert [row["event"] for row in lines(stage / "events.jsonl")] == ["evaluation_lost"]
    assert not (stage / "best.json").exists(), "its pass rate is of other tasks"
    assert (stage / "checkpoints/step_000001").is_dir(), "all is saved"
    assert "1 of 2" in CliRunner().invoke(app, ["show", str(tmp_path / "runs")]).output

    losing["loses"] = False
    again = train(tmp_path, *best)
    assert again.exit_code == 0, again.exception
    assert lines(stage / "metrics.jsonl")[-1]["evaluate/lost"] == 0
    assert (stage / "best.json").exists()


def test_a_run_may_lose_what_its_settings_allow(tmp_path: Path, losing: dict[str, bool]) -> None:
    done = train(tmp_path, "--evaluate.max_lost", "0.5")
    assert done.exit_code == 0, done.exception
    assert (tmp_path / "runs/run/first/evaluated.json").exists()
