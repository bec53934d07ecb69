"""ECHO learns from what the environment replied, beside GRPO and in the same forward pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.algorithms import algorithms
from assay.maths.masked import masked_sum
from assay.policy.forward import ModelOutput, forward
from assay.rollout.samples import to_samples
from assay.train.batch import to_batch, with_weights
from assay.types import Completion, Rollout, Sample, Score, Task, Turn
from tests.policies import random_samples, tiny_policy
from tests.train.test_learner import make

ECHO = algorithms["echo"].build({"name": "echo", "importance_sampling": "none"})
GRPO = algorithms["grpo"].build({"name": "grpo", "importance_sampling": "none"})
CPU = torch.device("cpu")


def with_replies(samples: list[Sample], least: int = 4) -> list[Sample]:
    """The samples with two of each one's later sampled tokens as observed ones, in odd places."""
    changed = []
    for place, sample in enumerate(samples):
        first = list(sample.mask).index(True)
        where = range(first + 1, first + 3) if place % 2 and sample.trained_tokens > least else ()
        observed = tuple(at in where for at in range(len(sample.mask)))
        mask = tuple(on and at not in where for at, on in enumerate(sample.mask))
        changed.append(replace(sample, mask=mask, observed=observed if where else ()))
    return changed


def test_what_lies_between_completions_of_a_sample_is_observed() -> None:
    def turn(prompt: tuple[int, ...], *tokens: int) -> Turn:
        return Turn(prompt, Completion("", tokens, (-1.0,) * len(tokens), "stop", (0,)))

    first, second = turn((1, 2), 3, 4), turn((1, 2, 3, 4, 5, 6, 7), 8)
    task = Task("t", "", (), "f")
    (sample,) = to_samples([[Rollout(task, (first, second), Score(1.0))]])
    assert [bool(on) for on in sample.observed] == [False] * 4 + [True] * 3 + [False]
    assert not any(a and b for a, b in zip(sample.observed, sample.mask, strict=True))
    anew = turn((9, 9), 8)
    parts = to_samples([[Rollout(task, (first, anew), Score(1.0))]])
    assert [list(part.observed) for part in parts] == [[], []], "a prompt written anew is none"


def test_the_loss_is_grpos_and_a_tenth_of_the_mean_surprise_at_replies() -> None:
    """Of two completions with advantages of 1 and -1; three observed tokens in all."""
    rows = [
        Sample((1, 2, 3, 4, 5), (False, True, False, False, True), reward=1.0, group="a",
               observed=(False, False, True, True, False)),
        Sample((1, 2, 3), (False, True, False), reward=0.0, group="a",
               observed=(False, False, True)),
    ]  # fmt: skip
    samples = with_weights(ECHO.compute_advantages(rows), ECHO.loss_mean, 9)
    assert [sample.observed_weight for sample in samples] == pytest.approx([0.1 / 3] * 2)
    batch = to_batch(samples, 0, CPU)
    logprobs = torch.tensor([[0.0, -1.0, -2.0, -3.0, -1.0], [0.0, -1.0, -7.0, 0.0, 0.0]])
    losses, numbers = ECHO.loss(ModelOutput(logprobs, torch.ones(2, 5)), batch)
    # on policy, GRPO's loss is (-1 - 1 + 1) / 3 tokens
    expected = -1 / 3 + 0.1 * (2 + 3 + 7) / 3
    assert masked_sum(losses * batch.weights, batch.predicted).item() == pytest.approx(expected)
    assert numbers["echo"][batch.mask].tolist() == pytest.approx([2.5, 2.5, 7.0])


def test_its_gradient_is_that_of_grpo_and_of_the_likelihood_of_the_replies(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    samples = with_weights(
        ECHO.compute_advantages(with_replies(random_samples(8))), ECHO.loss_mean, 9
    )
    batch = to_batch(samples, 0, CPU)
    assert batch.observed is not None
    assert batch.observed.any()

    def gradient(total: torch.Tensor) -> torch.Tensor:
        parts = torch.autograd.grad(total, list(policy.trainable.values()))
        return torch.cat([part.flatten() for part in parts])

    losses, _ = ECHO.loss(forward(policy.model, batch), batch)
    found = gradient(masked_sum(losses * batch.weights, batch.predicted))
    plain = replace(batch, observed=None, weights=torch.tensor([[s.weight] for s in samples]))
    losses, _ = GRPO.loss(forward(policy.model, plain), plain)
    logits = policy.model(input_ids=batch.tokens, attention_mask=batch.attention.long()).logits
    labels = batch.tokens.masked_fill(~batch.observed, -100)
    surprise = torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:])
    expected = gradient(masked_sum(losses * plain.weights, plain.mask) + 0.1 * surprise)
    assert torch.allclose(found, expected, atol=2e-6)
    assert expected.abs().max() > 1e-3


def test_a_group_of_zero_variance_still_teaches_what_was_replied(tmp_path: Path) -> None:
    equal = [replace(sample, reward=0.0) for sample in with_replies(random_samples(8))]
    learner = make(tmp_path, ECHO, optimizer={"lr": 1e-2})
    surprises = [learner.step(equal, step)["loss"] for step in range(4)]
    assert surprises[-1] < surprises[0] - 0.05 * surprises[0]
    skipped = learner.step(equal, 4)["learn/skipped"]
    assert skipped == sum(not sample.observed for sample in equal) / 8


def test_replies_in_a_sample_that_was_cut_off_are_learned_all_the_same(tmp_path: Path) -> None:
    settings = {"name": "echo", "importance_sampling": "none", "mask_truncated": True}
    cut = [replace(sample, truncated=True) for sample in with_replies(random_samples(8))]
    learner = make(tmp_path, algorithms["echo"].build(settings))
    (part,) = learner._minibatches(learner.algorithm.compute_advantages(cut), 0)
    assert len(part) == sum(bool(sample.observed) for sample in cut) > 0
    weights = [sample.observed_weight * sum(sample.observed) for sample in part]
    assert sum(weights) == pytest.approx(0.1)


def test_other_algorithms_leave_replies_out() -> None:
    samples = GRPO.compute_advantages(with_replies(random_samples(4)))
    assert to_batch(with_weights(samples, "tokens", 9), 0, CPU).observed is None
