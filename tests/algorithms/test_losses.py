"""The loss of each algorithm on a batch of given log-probabilities, against numbers computed by
hand.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from assay.algorithms import algorithms
from assay.errors import SettingsError
from assay.policy.forward import ModelOutput
from assay.types import Batch

TWO, FOUR = math.log(2), math.log(4)
MASK = torch.tensor([[False, True, True], [False, True, False]])
ADVANTAGES = torch.tensor([[0.0, 1.0, 1.0], [0.0, -1.0, 0.0]])
LOGPROBS = torch.tensor([[0.0, -1.0, -2.0], [0.0, -1.0, 0.0]])
OLD = LOGPROBS - torch.tensor([[0.0, TWO, -TWO], [0.0, -FOUR, 0.0]])
"""Ratios: 2 and 1/2 of the first sample's tokens, 1/4 of the second's."""


def batch(**more: Any) -> Batch:
    shape = {
        "tokens": torch.zeros(2, 3, dtype=torch.int64),
        "attention": torch.ones(2, 3, dtype=torch.bool),
    }
    numbers = {"logprobs": OLD, "advantages": ADVANTAGES, "old_logprobs": OLD}
    rows = {"weights": torch.ones(2, 1), "groups": torch.tensor([0, 0])}
    return Batch(**{**shape, "mask": MASK, **numbers, **rows, **more})


def losses(
    name: str, given: Batch | None = None, output: ModelOutput | None = None, **settings: object
) -> list[float]:
    """The losses under the mask: two of the first sample, one of the second."""
    algorithm = algorithms[name].build({"name": name, **settings})
    found, numbers = algorithm.loss(
        output or ModelOutput(LOGPROBS, torch.ones(2, 3)), given or batch()
    )
    for value in numbers.values():
        assert torch.isfinite(value.masked_select(MASK)).all()
        assert value.shape == MASK.shape
    return found.masked_select(MASK).tolist()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("grpo", [-1.28, -0.5, 0.8]),
        ("dapo", [-1.28, -0.5, 0.8]),
        ("dr_grpo", [-1.2, -0.5, 0.8]),
        # of completions: sqrt(2 x 1/2) = 1 and 1/4
        ("gspo", [-1.0, -1.0, 1 - 3e-4]),
        ("rloo", [-1.0, -1.0, 0.8]),
        # weight x advantage x log-probability
        ("cispo", [2 * 1.0, 0.5 * 2.0, -0.25 * 1.0]),
        ("reinforce", [1.0, 2.0, -1.0]),
        ("max_rl", [-1.28, -0.5, 0.8]),
        ("echo", [-1.28, -0.5, 0.8]),
    ],
)
def test_each_algorithms_loss_on_the_same_ratios(name: str, expected: list[float]) -> None:
    assert losses(name, importance_sampling="none") == pytest.approx(expected)


def test_every_surrogate_on_policy_is_minus_the_advantage_or_the_score() -> None:
    for name in ("grpo", "dr_grpo", "dapo", "gspo", "rloo", "dppo", "max_rl"):
        assert losses(name, batch(old_logprobs=None, logprobs=LOGPROBS)) == pytest.approx(
            [-1, -1, 1]
        )
    for name in ("cispo", "reinforce"):
        assert losses(name, batch(old_logprobs=None, logprobs=LOGPROBS)) == pytest.approx(
            [1, 2, -1]
        )


@pytest.mark.parametrize(
    ("correction", "weights"),
    [("token_truncate", [2, 0.5, 0.25]), ("token_mask", [2, 0.5, 0]), ("sequence_mask", [1, 1, 0])],
)
def test_importance_sampling_weights_the_loss_by_learner_over_engine(
    correction: str, weights: list[float]
) -> None:
    low = 0.0 if correction == "token_truncate" else 0.3
    given = batch(old_logprobs=None)
    assert losses(
        "reinforce", given, importance_sampling=correction, importance_sampling_min=low
    ) == pytest.approx([weights[0] * 1, weights[1] * 2, weights[2] * -1])


@pytest.mark.parametrize("name", ["gspo", "rloo"])
def test_algorithms_of_whole_completions_weight_each_token_by_its_own_ratio_by_default(
    name: str,
) -> None:
    # token ratios of 4, truncated at 2, and 1/2; the completion's product is 2
    engine = LOGPROBS - torch.tensor([[0.0, FOUR, -TWO], [0.0, -FOUR, 0.0]])
    given = batch(old_logprobs=None, logprobs=engine)
    assert losses(name, given) == losses("grpo", given) == pytest.approx([-2.0, -0.5, 0.25])
    product = losses(name, given, importance_sampling="sequence_truncate")
    assert product == pytest.approx([-2.0, -2.0, 0.25])


def test_the_spread_of_importance_weights_shows_what_their_mean_hides() -> None:
    mask = torch.tensor([[False, True, True]])
    engine = torch.tensor([[0.0, math.log(2), math.log(2 / 3)]]) + LOGPROBS[:1]
    rows = {"weights": torch.ones(1, 1), "groups": torch.tensor([0]), "mask": mask}
    given = batch(old_logprobs=None, logprobs=engine, advantages=ADVANTAGES[:1], **rows)
    output = ModelOutput(LOGPROBS[:1], torch.ones(1, 3))
    _, numbers = algorithms["rloo"].build({"name": "rloo"}).loss(output, given)
    weights, spread = (
        numbers[name][mask] for name in ("importance_weight", "importance_weight_spread")
    )
    assert weights.tolist() == pytest.approx([0.5, 1.5])
    assert (weights.mean().item(), spread.mean().item()) == pytest.approx((1.0, 0.5))


@pytest.mark.parametrize(
    ("estimator", "of_a_token"), [("k1", 0.5), ("k2", 0.125), ("k3", math.exp(-0.5) - 0.5)]
)
def test_the_kl_penalty_is_added_with_its_strength(estimator: str, of_a_token: float) -> None:
    given = batch(reference_logprobs=LOGPROBS - 0.5)
    options: dict[str, Any] = {"kl_estimator": estimator}
    expected = [ratio * of_a_token for ratio in (2, 0.5, 0.25)]
    plain, with_it = losses("grpo", given), losses("grpo", given, kl=3.0, **options)
    assert [b - a for a, b in zip(plain, with_it, strict=True)] == pytest.approx(
        [3 * value for value in expected], rel=1e-4
    )
    whole = losses("gspo", given, kl=3.0, **options)
    assert whole[0] - losses("gspo", given)[0] == pytest.approx(3 * expected[0], rel=1e-4), (
        "always of tokens"
    )


def test_a_kl_penalty_in_the_reward_leaves_the_loss_alone() -> None:
    assert losses("grpo", kl=3.0, kl_in="reward") == losses("grpo")


def test_the_weighted_k3_in_the_loss_has_the_gradient_of_the_kl() -> None:
    """Summed over a vocabulary of three, each token as likely as it is drawn: d KL(p || q) / d
    logits.
    """
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.tensor([1.0, 0.0, -0.5], dtype=torch.float64), -1)
    logprobs = torch.log_softmax(logits, -1)
    true = torch.autograd.grad(
        (logprobs.exp() * (logprobs - reference)).sum(), logits, retain_graph=True
    )[0]
    for estimator in ("k1", "k3"):
        options = {
            "name": "reinforce",
            "kl": 1.0,
            "kl_estimator": estimator,
            "importance_sampling": "none",
        }
        row = logprobs.unsqueeze(0)
        seen = torch.ones(1, 3, dtype=torch.bool)
        given = batch(mask=seen, logprobs=row.detach(), advantages=torch.zeros(1, 3),
        old_logprobs=None,
                      reference_logprobs=reference.unsqueeze(0))  # fmt: skip
        loss, _ = (
            algorithms["reinforce"].build(options).loss(ModelOutput(row, torch.zeros(1, 3)), given)
        )
        found = torch.autograd.grad(
            (loss * logprobs.detach().exp()).sum(), logits, retain_graph=True
        )[0]
        assert torch.allclose(found, true), estimator


def test_the_entropy_bonus_is_subtracted_from_the_loss() -> None:
    seen = ModelOutput(LOGPROBS, torch.full((2, 3), 0.7))
    assert losses(
        "reinforce", batch(old_logprobs=None, logprobs=LOGPROBS), seen, entropy_bonus=0.1
    ) == pytest.approx([1 - 0.07, 2 - 0.07, -1 - 0.07])
    assert (
        algorithms["reinforce"].build({"name": "reinforce", "entropy_bonus": 0.1}).entropy_gradient
    )


def test_the_critic_learns_beside_the_policy_by_its_clipped_error() -> None:
    values = torch.tensor([[0.0, 1.0, 0.1], [0.0, 0.0, 0.0]])
    given = batch(values=torch.zeros(2, 3), returns=torch.ones(2, 3))
    found = losses(
        "ppo",
        given,
        ModelOutput(LOGPROBS, torch.ones(2, 3), values),
        value_loss=2.0,
        importance_sampling="none",
    )
    # max(0, 0.8^2), 0.9^2 and 1, halved by the square and doubled by the weight
    assert found == pytest.approx([-1.2 + 0.64, -0.5 + 0.81, 0.8 + 1.0])


def test_without_a_critic_ppo_is_the_clipped_surrogate_alone() -> None:
    algorithm = algorithms["ppo"].build({"name": "ppo", "critic": False})
    assert (algorithm.needs_critic, algorithm.needs_logprobs_first, algorithm.epochs) == (
        False,
        False,
        4,
    )
    assert losses("ppo", critic=False, importance_sampling="none") == pytest.approx(
        [-1.2, -0.5, 0.8]
    )


def test_dpo_relates_the_two_samples_of_a_pair() -> None:
    reference = LOGPROBS - torch.tensor([[0.0, 1.0, 2.0], [0.0, -1.5, 0.0]])
    # the chosen is e^3 likelier than under the reference, the rejected e^-1.5
    loss = math.log(1 + math.exp(-0.5 * 4.5))
    assert losses("dpo", batch(reference_logprobs=reference), beta=0.5) == pytest.approx([loss] * 3)


def test_dpo_at_the_reference_is_log_two_and_keeps_pairs_apart() -> None:
    assert losses("dpo", batch(reference_logprobs=LOGPROBS)) == pytest.approx([TWO] * 3)
    given = batch(reference_logprobs=LOGPROBS - 1.0, groups=torch.tensor([0, 1]))
    apart = [math.log(1 + math.exp(-0.1 * margin)) for margin in (2, 2, -1)]
    assert losses("dpo", given) == pytest.approx(apart)


def test_masked_values_leak_into_no_algorithms_loss() -> None:
    for name in (
        "sft",
        "dpo",
        "reinforce",
        "rloo",
        "grpo",
        "dr_grpo",
        "dapo",
        "gspo",
        "cispo",
        "ppo",
        "dppo",
        "max_rl",
        "sapo",
        "echo",
        "raft",
        "orpo",
        "kto",
    ):
        given = replace(
            batch(reference_logprobs=LOGPROBS, values=OLD, returns=OLD),
            logprobs=OLD.masked_fill(~MASK, math.nan),
        )
        logprobs = LOGPROBS.masked_fill(~MASK, math.inf).requires_grad_()
        loss, _ = (
            algorithms[name]
            .build({"name": name})
            .loss(ModelOutput(logprobs, LOGPROBS, LOGPROBS), given)
        )
        total = loss.masked_fill(~MASK, 0.0).sum()
        assert math.isfinite(total.item()), name


@pytest.mark.parametrize(
    "table",
    [
        {"name": "reinforce", "clip_high": 0.3},
        {"name": "reinforce", "ratio": "mean"},
        {"name": "ppo", "baseline": "group"},
        {"name": "ppo", "scale": "group"},
        {"name": "ppo", "critic": False, "gamma": 0.99},
        {"name": "grpo", "overlong_penalty": 0.5},
        {"name": "grpo", "max_resamples": 2},
        {"name": "grpo", "importance_sampling": "none", "importance_sampling_max": 5.0},
        {"name": "grpo", "kl_estimator": "k2"},
        {"name": "grpo", "kl_in": "reward"},
        {"name": "grpo", "clip_low": 2.0},
        {"name": "grpo", "geometric_mask": [1.1, 1.2]},
        {"name": "dppo", "clip_high": 0.3},
        {"name": "sapo", "clip_high": 0.3},
        {"name": "cispo", "anchor": "sampler", "importance_sampling": "token_mask"},
        {"name": "dppo", "ratio": "mean"},
        {"name": "dppo", "importance_sampling": "token_mask"},
        {"name": "dppo", "importance_sampling_max": 5.0},
    ],
)
def test_a_setting_without_effect_is_refused(table: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="algorithm"):
        algorithms[str(table["name"])].build(table)


def test_dppos_ratio_is_to_the_engine_and_stops_outside_the_trust_region() -> None:
    """The policy's p is 0.5, 0.1 and 0.1, the engine's 0.2, 0.4 and 0.25."""
    policy = torch.tensor([[1.0, 0.5, 0.1], [1.0, 0.1, 1.0]]).log()
    engine = torch.tensor([[1.0, 0.2, 0.4], [1.0, 0.25, 1.0]]).log()
    given, output = batch(logprobs=engine), ModelOutput(policy, torch.ones(2, 3))
    assert losses("dppo", given, output) == pytest.approx([0, -0.25, 0.4], abs=1e-6)
    assert losses("dppo", given, output, divergence_high=0.4) == pytest.approx([-2.5, -0.25, 0.4])
    assert losses("dppo", given, output, divergence_low=0.1) == pytest.approx(
        [0, -0.25, 0], abs=1e-6
    )
    # KL: 0.193 upwards, 0.092 downwards
    assert losses("dppo", given, output, divergence="kl") == pytest.approx([0, -0.25, 0], abs=1e-6)
    limits: dict[str, Any] = {"divergence_low": 0.1, "divergence_high": 0.2}
    assert losses("dppo", given, output, divergence="kl", **limits) == pytest.approx(
        [-2.5, -0.25, 0.4]
    )


def test_sapos_gate_is_a_sigmoid_of_the_ratio_sharper_for_negative_advantages() -> None:
    def gate(tau: float, ratio: float) -> float:
        return 4 / tau / (1 + math.exp(-tau * (ratio - 1)))

    expected = [-gate(1.0, 2.0), -gate(1.0, 0.5), gate(1.05, 0.25)]
    assert losses("sapo", importance_sampling="none") == pytest.approx(expected)
    assert expected == pytest.approx([-2.924, -1.510, 1.191], abs=1e-3)
    options: dict[str, Any] = {
        "tau_positive": 2.0,
        "tau_negative": 4.0,
        "importance_sampling": "none",
    }
    expected = [-gate(2.0, 2.0), -gate(2.0, 0.5), gate(4.0, 0.25)]
    assert losses("sapo", **options) == pytest.approx(expected)


def test_cispo_can_weigh_by_the_ratio_to_the_sampler_in_place_of_two_weights() -> None:
    # to the engine 8 (clipped at 5), 0.25 and 0.5; to the old policy 2, 0.5 and 0.25
    engine = LOGPROBS - torch.tensor([[0.0, 3 * TWO, -FOUR], [0.0, -TWO, 0.0]])
    given = batch(logprobs=engine)
    assert losses("cispo", given, anchor="sampler") == pytest.approx([5.0, 0.25 * 2, -0.5])
    # two weights: 2 x min(4, 2), 0.5 x 0.5, 0.25 x 2
    assert losses("cispo", given) == pytest.approx([4.0, 0.25 * 2, -0.5])


def test_a_completion_far_from_the_engine_is_left_out_by_the_geometric_mask() -> None:
    """The first completion's ratios to the engine are 2 and 1/2, the second's is 1/4."""
    given = batch(old_logprobs=None)
    assert losses("reinforce", given, geometric_mask=[0.9, 1.1]) == pytest.approx([2 * 1, 1.0, 0])
    options: dict[str, Any] = {"geometric_mask": [0.9, 1.1], "importance_sampling": "none"}
    assert losses("reinforce", given, **options) == pytest.approx([1, 2, 0])
    assert losses("reinforce", given, **options | {"geometric_mask": [0.2, 1.1]}) == [1, 2, -1]


def test_a_completion_that_is_left_out_does_not_widen_the_spread_of_the_weights() -> None:
    settings = {"name": "reinforce", "importance_sampling": "none", "geometric_mask": [0.9, 1.1]}
    algorithm = algorithms["reinforce"].build(settings)
    _, numbers = algorithm.loss(ModelOutput(LOGPROBS, torch.ones(2, 3)), batch(old_logprobs=None))
    assert numbers["importance_weight"].masked_select(MASK).tolist() == [1, 1, 0]
    assert numbers["importance_weight_spread"].masked_select(MASK).tolist() == [0, 0, 0]


def test_raft_is_the_negative_log_likelihood_of_what_is_left() -> None:
    assert losses("raft") == pytest.approx([1, 2, 1])


def test_orpo_is_the_likelihood_of_the_chosen_and_the_ratio_of_odds() -> None:
    """The chosen has p = 1/2 and 1/8, so a geometric mean of 1/4; the rejected has 1/2."""
    logprobs = torch.tensor([[1.0, 0.5, 0.125], [1.0, 0.5, 1.0]]).log()
    output = ModelOutput(logprobs, torch.ones(2, 3))
    # odds of 1/3 and 1: -log sigmoid(log 1/3) = log(1 + 3)
    ratio = 0.5 * math.log(4)
    found = losses("orpo", batch(), output, beta=0.5)
    assert found == pytest.approx([2 * TWO + ratio, 2 * math.log(8) + ratio, ratio])
    # as the mean of completions: that of the chosen's tokens, and the ratio's term once
    mean = (found[0] + found[1]) / 4 + found[2] / 2
    assert mean == pytest.approx((TWO + math.log(8)) / 2 + ratio)


def test_orpo_stays_finite_where_a_completion_is_certain() -> None:
    assert all(map(math.isfinite, losses("orpo", output=ModelOutput(0 * LOGPROBS, 0 * LOGPROBS))))


def test_kto_judges_each_completion_by_itself() -> None:
    reference = LOGPROBS - torch.tensor([[0.0, 1.0, 2.0], [0.0, -1.5, 0.0]])
    given = batch(reference_logprobs=reference)
    # the one that passed is e^3 likelier than under the reference, the other e^-1.5
    good, bad = 1 / (1 + math.exp(0.5 * 3)), 1 / (1 + math.exp(0.5 * 1.5))
    assert losses("kto", given, beta=0.5) == pytest.approx([good, good, bad])
    weights: dict[str, Any] = {"desirable_weight": 3.0, "undesirable_weight": 2.0}
    assert losses("kto", given, beta=0.5, **weights) == pytest.approx([3 * good] * 2 + [2 * bad])
    assert losses("kto", batch(reference_logprobs=LOGPROBS)) == pytest.approx([0.5] * 3)
