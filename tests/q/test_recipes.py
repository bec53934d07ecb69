"""The recipe of q, and its command in docs/recipes.md, on a few rows of our own with a stand-in
for q.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from assay.config.load_settings import load_plan
from assay.train.stages import prepare_all, run_plan
from tests.end_to_end.test_recipes import commands, small
from tests.policies import change_json, checkpoint
from tests.policy.test_chat import CHATML

REASONS = ["--policy.model", "Qwen/Qwen2.5-14B-Instruct", "--prompt.reasoning", "reasoning"]
CHANGES = {"q": [], "q-7b": commands()["q-7b"][1:], "q-14b": [*commands()["q-7b"][1:], *REASONS]}
ROWS = [
    {
        "id": number,
        "description": f"Write solve, which adds {number} to a number.",
        "reference": f"solve:{{x+{number}}}",
        "tests": [
            {"test_code": f"show solve[{given}]", "expected_output": str(given + number)}
            for given in range(7)
        ],
    }
    for number in range(4)
]


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "q").mkdir()
    for split in ("train", "test"):
        lines = (json.dumps(row) for row in ROWS)
        (tmp_path / "q" / f"{split}.jsonl").write_text("\n".join(lines))
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_a_recipe_passes_a_dry_run(changes: list[str], rows: Path) -> None:
    sft, grpo = prepare_all(load_plan(Path("q"), changes), dry_run=True)
    assert grpo.settings.policy.model.startswith("Qwen/Qwen2.5-")
    assert all(task.reference for task in sft.tasks)
    assert [len(task.checks) for task in grpo.tasks] == [5] * 4
    assert grpo.settings.prompt.reasoning == ("reasoning" if "reasoning" in changes else "")


@pytest.mark.long
def test_a_recipe_takes_two_steps_with_a_random_model(rows: Path, q: Path) -> None:
    plan = load_plan(Path("q"), CHANGES["q-14b"])
    model = checkpoint(rows, "qwen2", CHATML)
    change_json(model / "config.json", max_position_embeddings=16_384)
    stages = tuple(small(stage, model, rows / "runs") for stage in plan.stages)
    outcome = run_plan(replace(plan, stages=stages))
    for stage in stages:
        lines = (outcome.folder / stage.stage / "metrics.jsonl").read_text().splitlines()
        assert {json.loads(line)["step"] for line in lines if '"loss"' in line} == {1, 2}
