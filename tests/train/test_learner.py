"""The learner: micro-batches change nothing, skipped samples change nothing, what is not finite stops it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.algorithms import Algorithm, algorithms
from assay.algorithms.base import never
from assay.errors import TrainingError
from assay.train.batch import micro_batches, to_batch
from assay.train.learner import Learner
from assay.types import Sample
from tests.policies import random_samples, run_settings, tiny_policy


def make(
    folder: Path, algorithm: Algorithm | None = None, policy: dict[str, Any] | None = None, **changes: Any
) -> Learner:
    settings = run_settings(**changes)
    chosen = algorithm or algorithms[settings.algorithm["name"]].build(settings.algorithm)
    return Learner(settings, chosen, tiny_policy(folder, **(policy or {})), steps=4, temperature=1.0)


def weights(learner: Learner) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in learner.policy.trainable.values()]).clone()


def test_many_micro_batches_learn_what_one_learns(tmp_path: Path) -> None:
    results = []
    for budget in (100_000, 60, 1):
        learner = make(tmp_path, learner={"micro_batch_tokens": budget}, optimizer={"lr": 1e-2, "eps": 1.0})
        metrics = learner.step(random_samples(16), 0)
        results.append((weights(learner), metrics["loss"], metrics["learn/grad_norm"]))
    for found in results[1:]:
        assert torch.allclose(found[0], results[0][0], atol=1e-6)
        assert found[1:] == pytest.approx(results[0][1:], rel=1e-4)


def test_skipping_samples_without_advantage_changes_neither_loss_nor_weights(tmp_path: Path) -> None:
    algorithm = algorithms["grpo"].build({"name": "grpo"})
    flat = [replace(sample, reward=1.0, group="flat") for sample in random_samples(4, seed=9)]
    outcomes = []
    for skips in (algorithm.skips, never):
        learner = make(tmp_path, replace(algorithm, skips=skips), optimizer={"lr": 1e-2, "eps": 1.0})
        metrics = learner.step(random_samples(8) + flat, 0)
        outcomes.append((weights(learner), metrics["loss"]))
    assert torch.allclose(outcomes[0][0], outcomes[1][0], atol=1e-7)
    assert outcomes[0][1] == pytest.approx(outcomes[1][1], abs=1e-7)


def test_the_loss_of_sft_is_the_mean_negative_log_likelihood_of_the_masked_tokens(tmp_path: Path) -> None:
    learner = make(tmp_path, algorithms["sft"].build({"name": "sft"}))
    samples = random_samples(6)
    total, count = 0.0, 0
    for sample in samples:
        tokens = torch.tensor([sample.tokens])
        with torch.no_grad():
            logprobs = torch.log_softmax(learner.policy.model(tokens).logits[0], -1)
        for place, trained in enumerate(sample.mask):
            if trained:
                total -= logprobs[place - 1, sample.tokens[place]].item()
                count += 1
    assert learner.step(samples, 0)["loss"] == pytest.approx(total / count, rel=1e-5)


def test_a_step_without_any_useful_sample_leaves_the_weights_alone(tmp_path: Path) -> None:
    learner = make(tmp_path)
    before = weights(learner)
    metrics = learner.step([replace(sample, reward=1.0) for sample in random_samples(4)], 0)
    assert torch.equal(weights(learner), before)
    assert (metrics["loss"], metrics["learn/skipped"]) == (0.0, 1.0)


def test_a_step_reports_its_loss_norm_rate_and_entropy(tmp_path: Path) -> None:
    metrics = make(tmp_path).step(random_samples(8), 0)
    assert {
        "loss",
        "learn/grad_norm",
        "learn/lr",
        "learn/entropy",
        "learn/clipped",
        "learn/kl_engine",
    } <= metrics.keys()
    assert 0 < metrics["learn/entropy"] < torch.log(torch.tensor(300.0)).item() + 1e-3


def test_a_loss_that_is_not_finite_stops_before_the_weights_change(tmp_path: Path) -> None:
    learner = make(tmp_path)
    before = weights(learner)
    broken = [replace(sample, reward=float("inf") if n == 0 else 0.0) for n, sample in enumerate(random_samples(4))]
    with pytest.raises(TrainingError, match="step 4: the loss is nan"):
        learner.step(broken, 3)
    assert torch.equal(weights(learner), before)


def test_several_epochs_hold_the_ratio_to_the_policy_before_the_first(tmp_path: Path) -> None:
    learner = make(tmp_path, algorithms["grpo"].build({"name": "grpo", "epochs": 3}))
    metrics = learner.step(random_samples(8), 0)
    assert metrics["learn/clipped"] > 0, "after two steps at a high rate some ratios leave the clip's bounds"


def test_the_divergence_from_the_start_of_the_stage_grows_from_zero(tmp_path: Path) -> None:
    learner = make(tmp_path, algorithms["grpo"].build({"name": "grpo", "kl": 0.1}))
    first = learner.step(random_samples(8), 0)["learn/kl"]
    second = learner.step(random_samples(8, seed=1), 1)["learn/kl"]
    assert first == pytest.approx(0.0, abs=1e-6)
    assert second > 1e-4


def test_a_lora_policy_trains_its_adapter_and_nothing_else(tmp_path: Path) -> None:
    learner = make(tmp_path, policy={"lora": {"rank": 2, "alpha": 4}})
    frozen = {n: p.detach().clone() for n, p in learner.policy.model.named_parameters() if not p.requires_grad}
    before = weights(learner)
    learner.step(random_samples(8), 0)
    assert all("lora_" in name for name in learner.policy.trainable)
    assert not torch.equal(weights(learner), before)
    now = dict(learner.policy.model.named_parameters())
    assert all(torch.equal(now[name], old) for name, old in frozen.items())


def test_micro_batches_of_padded_sequences_keep_the_budget_and_lose_nothing() -> None:
    samples = random_samples(30)
    pieces = micro_batches(samples, 64, packed=False)
    assert sorted(id(s) for piece in pieces for s in piece) == sorted(id(s) for s in samples)
    assert all(len(piece) == 1 or len(piece) * max(len(s.tokens) for s in piece) <= 64 for piece in pieces)


def continuing(prompt: int, *lengths: int) -> list[Sample]:
    return [Sample((prompt,) * 10 + (1,) * n, (False,) * 10 + (True,) * n, group=str(prompt)) for n in lengths]


def test_micro_batches_of_packed_sequences_count_a_prompt_once_and_keep_its_samples_together() -> None:
    eight, two, four = continuing(8, 5, 6, 7), continuing(2, 2), continuing(4, 4, 4)
    pieces = micro_batches([eight[0], *two, *four, *eight[1:]], 30, packed=True)
    assert pieces == [eight, [*four, *two]], "10 + 5 + 6 + 7 tokens, and 10 + 4 + 4 with 10 + 2"


def test_a_group_beyond_the_budget_is_cut_and_its_prompt_counted_in_each_piece() -> None:
    samples = continuing(3, *[6] * 7)
    pieces = micro_batches(samples, 30, packed=True)
    assert [len(piece) for piece in pieces] == [3, 3, 1], "10 + 3 x 6 tokens"
    assert sorted(id(s) for piece in pieces for s in piece) == sorted(map(id, samples))


@pytest.mark.parametrize("packed", [False, True])
def test_a_sample_longer_than_the_budget_is_a_micro_batch_of_its_own(packed: bool) -> None:
    long = Sample(tokens=(1,) * 50, mask=(False,) + (True,) * 49)
    assert [len(piece) for piece in micro_batches([long, long], 10, packed)] == [1, 1]


def test_a_batch_pads_on_the_right_and_masks_the_padding() -> None:
    samples = [
        Sample((5, 6, 7), (False, True, True), logprobs=(0, -1, -2), advantages=(0, 3, 3)),
        Sample((8, 9), (False, True)),
    ]
    batch = to_batch(samples, pad_token=0, device=torch.device("cpu"))
    assert batch.tokens.tolist() == [[5, 6, 7], [8, 9, 0]]
    assert batch.attention.tolist() == [[True] * 3, [True, True, False]]
    assert batch.mask.tolist() == [[False, True, True], [False, True, False]]
    assert batch.logprobs.tolist() == [[0, -1, -2], [0, 0, 0]]
    assert batch.advantages.tolist() == [[0, 3, 3], [0, 0, 0]]


def test_a_step_that_lost_every_rollout_to_the_machine_changes_nothing(tmp_path: Path) -> None:
    learner = make(tmp_path)
    before = weights(learner)
    assert learner.step([], 0)["learn/tokens"] == 0.0
    assert torch.equal(weights(learner), before)
