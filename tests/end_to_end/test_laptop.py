"""The laptop recipe trains a pretrained model: two steps of each stage, on SmolLM2-135M itself."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from assay.config.load_settings import load_plan
from assay.engines.torch.cache_probe import choose_cache
from assay.train.stages import run_plan

WORDING = Path(__file__).parent / "wording.py"
RECIPE = Path(__file__).parents[2] / "recipes" / "laptop.toml"
SHORT = (
    "--evaluate.limit 4 --evaluate.samples 1 --evaluate.max_tokens 16 --stages.sft.steps 2"
    " --stages.sft.dataset.batch_size 16 --stages.grpo.steps 2 --stages.grpo.rollout.max_tokens 48"
    " --stages.grpo.rollout.tasks_per_step 2 --stages.grpo.rewards.wording.weight 1"
)

AGENT = """
import json, os, urllib.request
def ask(messages):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "any", "messages": messages}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]
talk = [{"role": "user", "content": open(os.environ["ASSAY_TASK"]).read()}]
talk += [ask(talk), {"role": "user", "content": "Again, please."}]
print(ask(talk)["content"])
"""
THROUGH_AGENT = """
name = "agent"
plugins = ["{plugin}"]
policy = {{ model = "smollm2", dtype = "bfloat16" }}
tasks = {{ train = "drills:train", limit = 4 }}
rollout = {{ tasks_per_step = 1, group_size = 3, max_tokens = 10 }}
environment = {{ name = "program", command = ["{python}", "{agent}"], turns = 2 }}
rewards = {{ tests = {{}}, wording = {{}} }}
algorithm = {{ name = "grpo", zero_variance_groups = "count" }}
trackers = ["jsonl", "rollouts"]
judge.slots = 1
steps = 2
"""


@pytest.mark.long  # downloads 93 MB once
def test_the_laptop_recipe_takes_two_steps_of_each_stage_with_the_fused_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chosen: list[str] = []

    def choosing(model: Any) -> str:
        chosen.append(choose_cache(model))
        return chosen[-1]

    monkeypatch.setattr("assay.engines.torch.engine.choose_cache", choosing)
    words = [*SHORT.split(), "--folder", str(tmp_path), "--plugins", json.dumps([str(WORDING)])]
    plan = load_plan(RECIPE, words)
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


@pytest.mark.long  # downloads 93 MB once
def test_a_pretrained_model_in_bfloat16_learns_what_it_sampled_through_an_agent(
    tmp_path: Path,
) -> None:
    (agent := tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "run.toml").write_text(
        THROUGH_AGENT.format(python=sys.executable, agent=agent, plugin=WORDING)
    )
    outcome = run_plan(load_plan(tmp_path / "run.toml", ["--folder", str(tmp_path)]))
    stage = outcome.folder / "grpo"
    for line in map(json.loads, (stage / "metrics.jsonl").read_text().splitlines()):
        rows = parquet.read_table(stage / f"rollouts/step_{line['step']:06}.parquet").to_pylist()
        assert [row["turn"] for row in rows] == [0, 1] * 3
        for first, second in list(pairwise(rows))[::2]:
            prompt = first["prompt_tokens"] or rows[0]["prompt_tokens"]  # written once a group
            sampled = [*prompt, *first["tokens"]]
            assert second["prompt_tokens"][: len(sampled)] == sampled
        assert line["tokens/learned"] == line["learn/tokens"] == sum(row["length"] for row in rows)
        assert line["learn/kl_engine"] < 0.01
