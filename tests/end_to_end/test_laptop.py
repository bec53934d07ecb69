"""The laptop recipe trains a pretrained model: two steps of each stage, on SmolLM2-135M itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.config.load_settings import load_plan
from assay.engines.torch.cache_probe import choose_cache
from assay.train.stages import run_plan

RECIPE = Path(__file__).parents[2] / "recipes" / "laptop.toml"
SHORT = (
    "--evaluate.limit 4 --evaluate.samples 1 --evaluate.max_tokens 16 --stages.sft.steps 2"
    " --stages.sft.dataset.batch_size 16 --stages.grpo.steps 2 --stages.grpo.rollout.max_tokens 48"
    " --stages.grpo.rollout.tasks_per_step 2 --stages.grpo.rewards.length.on_failure true"
)


@pytest.mark.long  # downloads 93 MB once
def test_the_laptop_recipe_takes_two_steps_of_each_stage_with_the_fused_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chosen: list[str] = []

    def choosing(model: Any) -> str:
        chosen.append(choose_cache(model))
        return chosen[-1]

    monkeypatch.setattr("assay.engines.torch.engine.choose_cache", choosing)
    plan = load_plan(RECIPE, [*SHORT.split(), "--folder", str(tmp_path)])
    assert run_plan(plan).finished
    assert "cannot be packed" not in caplog.text
    assert chosen == ["fused", "fused"], "in bfloat16 where the processor has it"
    rows = {
        stage: [
            json.loads(line)
            for line in (tmp_path / "laptop" / stage / "metrics.jsonl").read_text().splitlines()
        ]
        for stage in ("sft", "grpo")
    }
    losses = [row["loss"] for row in rows["sft"] if "loss" in row]
    assert len(losses) == 2
    assert losses[1] < losses[0]
    distances = [row["learn/kl_engine"] for row in rows["grpo"] if "learn/kl_engine" in row]
    assert len(distances) == 2
    assert max(distances) < 0.01
