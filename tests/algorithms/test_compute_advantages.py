"""From the rewards of a step to advantages, under the options that all algorithms share."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from assay.algorithms import algorithms
from assay.errors import SettingsError
from assay.types import Sample

REWARDS = [1.0, 0.0, 0.0, 0.0, 0.5, 0.5]
SAMPLES = [
    Sample((1, 2, 3), (False, True, True), reward=reward, group="a" if n < 4 else "b")
    for n, reward in enumerate(REWARDS)
]


def estimate(name: str, samples: list[Sample] = SAMPLES, **settings: object) -> list[Sample]:
    estimated = algorithms[name].build({"name": name, **settings}).compute_advantages(samples)
    assert all(sample.advantages[0] == 0.0 for sample in estimated), "the prompt gets no advantage"
    return estimated


def advantages(name: str, samples: list[Sample] = SAMPLES, **settings: object) -> list[float]:
    return [sample.advantages[1] for sample in estimate(name, samples, **settings)]


def long(length: int, reward: float, group: str = "a", **more: object) -> Sample:
    """A sample with a completion of `length` of at most 10 tokens."""
    mask = (False,) + (True,) * length
    return replace(Sample((1,) * (1 + length), mask, reward=reward, group=group, limit=10), **more)  # type: ignore[arg-type]


def test_grpo_compares_within_the_group() -> None:
    third = -1 / math.sqrt(3)
    assert advantages("grpo") == pytest.approx([math.sqrt(3), third, third, third, 0, 0])
    assert advantages("grpo", scale="none") == [0.75, -0.25, -0.25, -0.25, 0, 0]


def test_the_group_algorithms_differ_in_baseline_and_scale() -> None:
    centred = [0.75, -0.25, -0.25, -0.25, 0, 0]
    third = -1 / math.sqrt(3)
    deviation = math.sqrt(sum((reward - 1 / 3) ** 2 for reward in REWARDS) / 6)
    assert advantages("dr_grpo") == centred
    assert advantages("rloo") == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3, 0, 0])
    assert advantages("cispo") == pytest.approx([value / deviation for value in centred])
    assert advantages("gspo") == pytest.approx([math.sqrt(3), third, third, third, 0, 0])


def test_max_rl_divides_by_the_groups_mean_so_rare_successes_weigh_more() -> None:
    # one success in four: (1 - 1/4) / (1/4); equal rewards teach nothing
    assert advantages("max_rl") == pytest.approx([3, -1, -1, -1, 0, 0])
    three = [long(1, 1.0)] * 3 + [long(1, 0.0)]
    assert advantages("max_rl", three) == pytest.approx([1 / 3, 1 / 3, 1 / 3, -1])
    assert advantages("max_rl", [long(1, 1.0)]) == [0.0], "nothing to compare with"
    assert advantages("max_rl", baseline="none") == pytest.approx([4, 0, 0, 0, 1, 1])
    below_zero = [long(1, -1.0), long(1, 0.5)]
    assert advantages("max_rl", below_zero) == [0.0, 0.0], "a negative mean turns no sign"


def test_reinforce_compares_with_the_batch_or_with_nothing() -> None:
    assert advantages("reinforce", baseline="none") == REWARDS
    assert advantages("reinforce") == pytest.approx([reward - 1 / 3 for reward in REWARDS])
    deviation = math.sqrt(sum((reward - 1 / 3) ** 2 for reward in REWARDS) / 6)
    standardised = [(reward - 1 / 3) / deviation for reward in REWARDS]
    assert advantages("reinforce", scale="batch") == pytest.approx(standardised)
    assert advantages("ppo", critic=False) == pytest.approx(standardised)


def test_a_running_baseline_is_the_mean_of_the_steps_before() -> None:
    algorithm = algorithms["reinforce"].build({"name": "reinforce", "baseline": "running"})
    steps = [[long(1, 1.0), long(1, 0.0)], [long(1, 1.0), long(1, 1.0)], [long(1, 0.0)]]
    found = [
        [sample.advantages[1] for sample in algorithm.compute_advantages(samples)]
        for samples in steps
    ]
    # the first step has only itself; then 0.5, then 9/10 of 0.5 and 1/10 of 1
    assert found == [[0.5, -0.5], [0.5, 0.5], [pytest.approx(-0.55)]]
    algorithm.compute_advantages([])
    assert algorithm.running_baseline is not None
    assert algorithm.running_baseline.tolist() == pytest.approx([0.9 * 0.55, 3.0])


def test_groups_are_separated_by_name_in_any_order_of_samples() -> None:
    mixed = [SAMPLES[0], SAMPLES[4], SAMPLES[1], SAMPLES[5]]
    assert advantages("grpo", mixed, scale="none") == [0.5, 0.0, -0.5, 0.0]


def test_groups_of_zero_variance_are_counted_or_left_out_as_a_whole() -> None:
    assert len(estimate("grpo")) == 6
    kept = estimate("grpo", zero_variance_groups="drop")
    assert [sample.group for sample in kept] == ["a"] * 4
    assert [sample.group for sample in estimate("dapo")] == ["a"] * 4, (
        "what could not be refilled is left out"
    )
    assert advantages("rloo", zero_variance_groups="drop") == pytest.approx(
        [1, -1 / 3, -1 / 3, -1 / 3]
    )
    assert advantages("reinforce", zero_variance_groups="drop") == [0.75, -0.25, -0.25, -0.25], (
        "the batch is what is left"
    )


def test_rewards_that_differ_by_rounding_are_a_group_of_zero_variance() -> None:
    near = [long(1, 0.5), long(1, 0.5 + 1e-4)]
    assert advantages("grpo", near) == [0.0, 0.0]
    assert not estimate("grpo", near, zero_variance_groups="drop")
    # of 0 and 1 the deviation is 0.5, of 0, 0 and 1 it would be 0.47; 1e-4 is rounding
    for reward, kept in ((2.05e-4, 3), (1.95e-4, 0)):
        halves = [*parts([1, 1], 0.0, 0), long(1, reward)]
        assert len(estimate("grpo", halves, zero_variance_groups="drop")) == kept


def test_advantages_are_clipped_on_both_sides() -> None:
    assert advantages("grpo", scale="none", advantage_clip=0.3) == pytest.approx(
        [0.3, -0.25, -0.25, -0.25, 0, 0]
    )
    assert advantages("grpo", scale="none", advantage_clip=0.2) == pytest.approx(
        [0.2, -0.2, -0.2, -0.2, 0, 0]
    )


def test_long_completions_lose_reward_over_the_buffer() -> None:
    samples = [long(4, 1.0), long(6, 1.0), long(8, 1.0), long(10, 1.0)]
    options = {"baseline": "none", "overlong_share": 0.4, "overlong_penalty": 2.0}
    assert advantages("reinforce", samples, **options) == pytest.approx([1.0, 1.0, 0.0, -1.0])


def test_truncated_completions_are_compared_with_but_not_learned_from() -> None:
    samples = [long(2, 1.0), long(10, 0.0, truncated=True)]
    first, second = estimate("dr_grpo", samples, mask_truncated=True)
    assert (first.advantages[1], second.advantages[1]) == (0.5, 0.0)
    assert not any(second.mask)
    assert estimate("dr_grpo", samples)[1].advantages[1] == -0.5


def test_a_kl_penalty_in_the_reward_is_summed_over_the_completion() -> None:
    seen = {"logprobs": (0.0, -1.0, -2.0), "reference_logprobs": (0.0, -1.5, -1.0)}
    sample = replace(SAMPLES[0], **seen)  # type: ignore[arg-type]
    options = {"baseline": "none", "kl": 0.1, "kl_in": "reward"}
    assert advantages("reinforce", [sample], kl_estimator="k1", **options) == pytest.approx(
        [1 - 0.1 * (0.5 - 1)]
    )
    k2 = (0.5**2 + 1) / 2
    assert advantages("reinforce", [sample], kl_estimator="k2", **options) == pytest.approx(
        [1 - 0.1 * k2]
    )
    older = replace(sample, old_logprobs=(0.0, -1.5, -1.0))
    assert advantages("reinforce", [older], **options) == [1.0], (
        "the policy's own log-probabilities where they are known"
    )


def parts(lengths: list[int], reward: float, rollout: int) -> list[Sample]:
    """One rollout in several samples, as a multi-turn rollout whose chat was rendered again."""
    return [long(length, reward, rollout=rollout) for length in lengths]


def test_a_rollout_in_parts_loses_reward_by_the_length_of_all_its_parts() -> None:
    samples = [*parts([3, 5], 1.0, 0), *parts([2, 2, 2], 1.0, 1), long(8, 1.0)]
    options = {"baseline": "none", "overlong_share": 0.4, "overlong_penalty": 2.0}
    # 8, 6 and 8 of 10 tokens; the punishment begins at 6 and is 2 at 10
    assert advantages("reinforce", samples, **options) == pytest.approx([0, 0, 1, 1, 1, 0])


def test_a_rollout_in_parts_pays_the_kl_of_all_its_parts() -> None:
    numbers = [((0.0, -1.0), (0.0, -1.5)), ((0.0, -2.0, -1.0), (0.0, -2.25, -2.0))]
    samples = [
        replace(part, logprobs=ours, reference_logprobs=theirs)
        for part, (ours, theirs) in zip(parts([1, 2], 1.0, 0), numbers, strict=True)
    ]
    options = {"baseline": "none", "kl": 0.1, "kl_in": "reward", "kl_estimator": "k1"}
    cost = 0.1 * (0.5 + 0.25 + 1.0)
    assert advantages("reinforce", samples, **options) == pytest.approx([1 - cost] * 2)


def test_a_rollout_in_parts_counts_once_in_every_baseline() -> None:
    samples = [*parts([1, 1, 1], 1.0, 0), *parts([1], 0.0, 1)]
    for baseline in ("running", "batch", "group"):
        found = advantages("reinforce", samples, baseline=baseline)
        assert found == [0.5, 0.5, 0.5, -0.5], baseline


def critic_sample(values: tuple[float, ...], reward: float, **more: object) -> Sample:
    bare = Sample((1,) * 4, (False, True, False, True), values=values, reward=reward)
    return replace(bare, **more)  # type: ignore[arg-type]


def test_ppos_advantages_come_from_the_critic_and_skip_untrained_tokens() -> None:
    sample = critic_sample((9.0, 0.25, 9.0, 0.75), 1.0)
    (found,) = estimate("ppo", [sample], scale="none", gamma=0.5, gae_lambda=0.5)
    assert found.advantages == pytest.approx((0, 0.375 - 0.25 + 0.25 * 0.25, 0, 0.25))
    assert found.returns == pytest.approx((0, 0.25 + 0.1875, 0, 1.0))


def test_ppos_advantages_are_whitened_over_the_tokens_of_the_step_and_its_returns_are_not() -> None:
    samples = [critic_sample((0.0,) * 4, 1.0), critic_sample((0.0,) * 4, 0.0)]
    found = estimate("ppo", samples)
    assert [tuple(sample.advantages) for sample in found] == [(0, 1, 0, 1), (0, -1, 0, -1)]
    assert [tuple(sample.returns) for sample in found] == [(0, 1, 0, 1), (0, 0, 0, 0)]


def test_ppo_gives_a_sample_without_trained_tokens_no_advantage() -> None:
    nothing = critic_sample((0.5,) * 4, 1.0, mask=(False,) * 4)
    found, other = estimate("ppo", [nothing, critic_sample((0.0,) * 4, 1.0)], scale="none")
    assert [*found.advantages, *found.returns] == [0.0] * 8
    assert list(other.advantages) == [0.0, 1.0, 0.0, 1.0]
    assert list(estimate("ppo", [nothing])[0].advantages) == [0.0] * 4


def test_ppos_kl_penalty_in_the_reward_is_paid_token_by_token() -> None:
    seen = {"old_logprobs": (0, -1.0, 0, -2.0), "reference_logprobs": (0, -1.5, 0, -3.0)}
    sample = critic_sample((0.0,) * 4, 1.0, **seen)
    (found,) = estimate("ppo", [sample], scale="none", kl=0.1, kl_in="reward", kl_estimator="k1")
    assert found.advantages == pytest.approx((0, 1 - 0.05 - 0.1, 0, 1 - 0.1))


@pytest.mark.parametrize("name", ["dpo", "orpo"])
def test_the_shortest_that_passed_is_paired_with_the_longest_that_failed(name: str) -> None:
    samples = [
        long(5, 1, passed=True),
        long(3, 1, passed=True),
        long(4, 0),
        long(9, 0),
        long(7, 0, group="b"),
    ]
    found = algorithms[name].build({"name": name}).compute_advantages(samples)
    assert [(sum(sample.mask), sample.advantages[-1]) for sample in found] == [(3, 1.0), (9, -1.0)]


def test_kto_measures_from_how_far_the_policy_has_moved_and_never_below_zero() -> None:
    def moved(*nats: float, passed: bool = False) -> Sample:
        old = (0.0, *(-1.0 + nat for nat in nats))
        reference = (0.0, *(-1.0 for _ in nats))
        return long(len(nats), 0, old_logprobs=old, reference_logprobs=reference, passed=passed)

    algorithm = algorithms["kto"].build({"name": "kto"})
    found = algorithm.compute_advantages([moved(0.5, 1.5, passed=True), moved(-1.0), moved(2.0)])
    assert [sample.advantages[1] for sample in found] == [1, -1, -1]
    # the mean log-ratio is (2 - 1 + 2) / 3 = 1: half of it on each of two tokens
    assert [list(sample.reference_logprobs[1:]) for sample in found] == [[-0.5, -0.5], [0], [0]]
    nearer = algorithm.compute_advantages([moved(-3.0), moved(1.0)])
    assert [sample.reference_logprobs[1] for sample in nearer] == [-1, -1]


def test_kto_on_a_file_measures_by_completions_behind_other_prompts_and_learns_from_none() -> None:
    def row(group: str, own: float, behind_another: float, good: bool) -> list[Sample]:
        return [
            long(2, 0, group=group, passed=good,
                 old_logprobs=(0.0, -1.0, -1.0 + nats), reference_logprobs=(0.0, -1.0, -1.0))
            for nats in (own, behind_another)
        ]  # fmt: skip

    algorithm = algorithms["kto"].build({"name": "kto", "labels": "rows.jsonl"})
    found = algorithm.compute_advantages([*row("a", 9.0, 1.0, True), *row("b", -9.0, 2.0, False)])
    assert [(sample.group, sample.advantages[1]) for sample in found] == [("a", 1), ("b", -1)]
    # the mean of 1 and 2 nats is 1.5: half of it on each of two tokens
    assert [list(sample.reference_logprobs[1:]) for sample in found] == [[-0.25, -0.25]] * 2
    assert (algorithm.learns_from, algorithm.file) == ("labels", "rows.jsonl")


def test_raft_learns_from_all_that_passed_and_from_nothing_else() -> None:
    samples = [long(5, 1, passed=True), long(3, 0), long(2, 1, group="b", passed=True), long(9, 1)]
    found = algorithms["raft"].build({"name": "raft"}).compute_advantages(samples)
    assert [(sum(sample.mask), sample.advantages[-1]) for sample in found] == [(5, 1.0), (2, 1.0)]


def test_only_samples_without_advantage_are_skipped_and_none_with_other_loss_terms() -> None:
    zero = replace(SAMPLES[0], advantages=(0.0, 0.0, 0.0))
    other = replace(SAMPLES[0], advantages=(0.0, 0.1, 0.1))
    assert [
        algorithms["grpo"].build({"name": "grpo"}).has_no_gradient(s) for s in (zero, other)
    ] == [
        True,
        False,
    ]
    for more in ({"kl": 0.1}, {"entropy_bonus": 0.1}):
        assert not algorithms["grpo"].build({"name": "grpo", **more}).has_no_gradient(zero)
    assert not algorithms["ppo"].build({"name": "ppo"}).has_no_gradient(zero)
    assert (
        algorithms["grpo"]
        .build({"name": "grpo", "kl": 0.1, "kl_in": "reward"})
        .has_no_gradient(zero)
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"name": "grpo", "clip_hihg": 1},
            "unknown setting 'algorithm.clip_hihg'; did you mean 'algorithm.clip_high'",
        ),
        ({"name": "sft", "x": 1}, "unknown setting 'algorithm.x'; there are none here"),
        ({"name": "grpo", "scale": "sum"}, "setting 'algorithm.scale' = 'sum'"),
        (
            {"name": "grpo", "importance_sampling_min": 3.0},
            "importance_sampling_min must be less than importance_sampling_max",
        ),
        ({"name": "reinforce", "epochs": 2}, "reinforce has no ratio"),
    ],
)
def test_a_wrong_setting_of_an_algorithm_is_refused_with_a_hint(
    table: dict[str, object], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        algorithms[str(table["name"])].build(table)
    assert message in str(caught.value)


def test_every_algorithms_own_defaults_are_valid_settings() -> None:
    for name in algorithms:
        settings = algorithms[name].settings
        given = settings().model_dump()
        assert settings.model_validate(given).model_dump() == given
