"""A pretrained model works in a shell: SmolLM2-135M in boxes, and each token stays as sampled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.config.load_settings import load_plan
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.torch import TorchEngine
from assay.rollout.samples import to_samples
from assay.train.stages import run_plan
from assay.types import Completion, Rollout, Sample
from tests.end_to_end.recipes import write
from tests.environments.repositories import repository

SHELL = """
name = "shell"
trackers = ["jsonl"]
[policy]
model = "smollm2"
dtype = "float32"
[environment]
name = "shell"
turns = 3
tool_calls = "text"
[judge]
allow_forgeable = true
slots = 1
[rollout]
tasks_per_step = 1
group_size = 2
max_tokens = 24
[stages.grpo]
steps = 2
algorithm = { name = "grpo", kl = 0.01 }
optimizer = { lr = 1e-5 }
"""
Generation = tuple[tuple[int, ...], tuple[int, ...]]
"""A prompt and what was sampled after it."""


def generations_in(sample: Sample) -> list[Generation]:
    """Each stretch of the sample's tokens that the model sampled, and all tokens before it."""
    tokens, mask = tuple(sample.tokens), [*sample.mask, False]
    starts = [at for at in range(1, len(tokens)) if mask[at] and not mask[at - 1]]
    return [(tokens[:at], tokens[at : mask.index(False, at)]) for at in starts]


@pytest.mark.long  # downloads 93 MB once
def test_the_learner_gets_each_token_of_a_shells_turns_as_the_engine_sampled_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled: list[Generation] = []
    samples: list[Sample] = []
    rollouts: list[Rollout] = []
    generate = TorchEngine.generate

    async def recorded(
        self: TorchEngine, request: GenerationRequest, sampling: Sampling
    ) -> Completion:
        completion = await generate(self, request, sampling)
        sampled.append((request.prompt, tuple(completion.tokens)))
        return completion

    def kept(groups: Sequence[Sequence[Rollout]], limit: int = 0) -> list[Sample]:
        rollouts.extend(rollout for group in groups for rollout in group)
        samples.extend(batch := to_samples(groups, limit))
        return batch

    monkeypatch.setattr(TorchEngine, "generate", recorded)
    monkeypatch.setattr("assay.train.sources.to_samples", kept)
    task = repository(tmp_path)
    row: dict[str, Any] = {"prompt": task.prompt, "tree": "tree", "reference": task.reference}
    row["fail_to_pass"] = task.checks[0].fail_to_pass  # type: ignore[attr-defined]
    rows = [json.dumps(row | {"id": f"calc/{number}"}) for number in range(2)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(rows))
    words = ["--tasks.train", str(tmp_path / "tasks.jsonl"), "--folder", str(tmp_path / "runs")]
    assert run_plan(load_plan(write(tmp_path, SHELL), words)).finished
    assert len(rollouts) == 2 * 2
    assert all(rollout.failure is None and len(rollout.turns) > 1 for rollout in rollouts)
    learned = [generation for sample in samples for generation in generations_in(sample)]
    assert Counter(learned) == Counter(sampled)
    lines = (tmp_path / "runs/shell/grpo/metrics.jsonl").read_text().splitlines()
    distances = [json.loads(line)["learn/kl_engine"] for line in lines]
    assert len(distances) == 2
    assert max(distances) < 1e-4, "the learner's forward pass gives the engine's probabilities"
