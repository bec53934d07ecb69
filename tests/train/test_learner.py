"""The learner: micro-batches change nothing, skipped samples change nothing, what is not finite
stops it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import pytest
import torch

from assay.algorithms import Algorithm, algorithms
from assay.algorithms.base import never
from assay.config.sections import PolicySettings
from assay.errors import TrainingError
from assay.maths.masked import LossMean
from assay.policy.forward import ModelOutput, forward
from assay.policy.load_model import load_policy
from assay.train import ranks as ranks_module
from assay.train.batch import micro_batches, to_batch
from assay.train.folder import StageFolder
from assay.train.learner import Learner
from assay.train.optimizer import Optimizer
from assay.types import Sample
from tests.policies import NoSource, random_samples, run_settings, tiny_policy


def make(
    folder: Path,
    algorithm: Algorithm | None = None,
    policy: dict[str, Any] | None = None,
    **changes: Any,
) -> Learner:
    settings = run_settings(**changes)
    chosen = algorithm or algorithms[settings.algorithm["name"]].build(settings.algorithm)
    return Learner(
        settings, chosen, tiny_policy(folder, **(policy or {})), steps=4, temperature=1.0
    )


def weights(learner: Learner) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in learner.policy.trainable.values()]).clone()


def test_many_micro_batches_learn_what_one_learns(tmp_path: Path) -> None:
    results = []
    for budget in (100_000, 60, 1):
        learner = make(
            tmp_path, learner={"micro_batch_tokens": budget}, optimizer={"lr": 1e-2, "eps": 1.0}
        )
        metrics = learner.step(random_samples(16), 0)
        results.append((weights(learner), metrics["loss"], metrics["learn/grad_norm"]))
    for found in results[1:]:
        assert torch.allclose(found[0], results[0][0], atol=1e-6)
        assert found[1:] == pytest.approx(results[0][1:], rel=1e-4)


def test_skipping_samples_without_advantage_changes_neither_loss_nor_weights(
    tmp_path: Path,
) -> None:
    algorithm = algorithms["grpo"].build({"name": "grpo"})
    equal = [replace(sample, reward=1.0, group="equal") for sample in random_samples(4, seed=9)]
    outcomes = []
    for skips in (algorithm.has_no_gradient, never):
        learner = make(
            tmp_path, replace(algorithm, has_no_gradient=skips), optimizer={"lr": 1e-2, "eps": 1.0}
        )
        metrics = learner.step(random_samples(8) + equal, 0)
        outcomes.append((weights(learner), metrics["loss"]))
    assert torch.allclose(outcomes[0][0], outcomes[1][0], atol=1e-7)
    assert outcomes[0][1] == pytest.approx(outcomes[1][1], abs=1e-7)


def test_the_loss_of_sft_is_the_mean_negative_log_likelihood_of_the_masked_tokens(
    tmp_path: Path,
) -> None:
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


def test_a_step_of_zero_variance_leaves_the_weights_alone(tmp_path: Path) -> None:
    learner = make(tmp_path)
    before = weights(learner)
    metrics = learner.step([replace(sample, reward=1.0) for sample in random_samples(4)], 0)
    assert torch.equal(weights(learner), before)
    assert (metrics["loss"], metrics["learn/skipped"]) == (0.0, 1.0)
    assert metrics["learn/grad_norm"] == 0.0


def test_a_step_of_zero_variance_compares_engine_and_learner_on_one_micro_batch(
    tmp_path: Path,
) -> None:
    flat = [replace(sample, reward=1.0) for sample in random_samples(8)]
    learner = make(tmp_path, learner={"micro_batch_tokens": 60})
    passes: list[int] = []
    hook = learner.policy.model.model.register_forward_hook(lambda *_: passes.append(1))
    learner.step(random_samples(1), 0)  # alone it has no gradient either; the layout is tried out
    passes.clear()
    metrics = learner.step(flat, 0)
    assert len(passes) == 1
    hook.remove()
    piece = learner._micro_batches(flat)[0]
    assert 0 < len(piece) < 8
    batch = learner._batch(piece)
    output, mask = learner._forward(batch), batch.mask
    apart = (-1.0 - output.logprobs.detach())[mask]  # the engine said -1 of each token
    assert metrics["learn/kl_engine"] == pytest.approx(float((apart.exp() - 1 - apart).mean()))
    assert metrics["learn/entropy"] == pytest.approx(float(output.entropy.detach()[mask].mean()))
    assert (metrics["learn/clipped"], metrics["learn/ratio_max"]) == (0.0, 1.0)


def test_a_step_of_zero_variance_changes_no_number_of_the_next(tmp_path: Path) -> None:
    flat = [replace(sample, reward=1.0) for sample in random_samples(4)]
    steps = []
    for before in ([], flat):
        torch.manual_seed(0)
        learner = make(tmp_path, policy={"lora": {"rank": 2, "dropout": 0.5}})
        learner.step(before, 0)
        steps.append(learner.step(random_samples(8, seed=1), 1))
        steps[-1].pop("time/learn")
        steps[-1]["weights"] = weights(learner).tolist()  # type: ignore[assignment]
    assert steps[0] == steps[1], "equal to the bit"


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
    broken = [
        replace(sample, reward=float("inf") if n == 0 else 0.0)
        for n, sample in enumerate(random_samples(4))
    ]
    with pytest.raises(TrainingError, match="step 4: the loss is nan"):
        learner.step(broken, 3)
    assert torch.equal(weights(learner), before)


def test_several_epochs_hold_the_ratio_to_the_policy_before_the_first(tmp_path: Path) -> None:
    learner = make(tmp_path, algorithms["grpo"].build({"name": "grpo", "epochs": 3}))
    metrics = learner.step(random_samples(8), 0)
    assert metrics["learn/clipped"] > 0, (
        "after two steps at a high rate some ratios leave the clip's bounds"
    )


def test_the_engine_is_compared_with_the_policy_before_the_step_in_every_epoch(
    tmp_path: Path,
) -> None:
    found = []
    for epochs in (1, 3):
        table = {"name": "grpo", "epochs": epochs}
        learner = make(tmp_path, algorithms["grpo"].build(table))
        found.append(learner.step(random_samples(8), 0)["learn/kl_engine"])
    assert found[1] == pytest.approx(found[0], rel=1e-4)


def test_the_largest_ratio_is_one_in_the_first_gradient_step_and_that_of_one_token_later(
    tmp_path: Path,
) -> None:
    samples = random_samples(8)
    first = make(tmp_path).step(samples, 0)
    assert first["learn/ratio_max"] == 1.0
    for budget in (100_000, 30):
        algorithm = algorithms["grpo"].build({"name": "grpo", "epochs": 2})
        learner = make(tmp_path, algorithm, learner={"micro_batch_tokens": budget})
        batch = to_batch(samples, 0, torch.device("cpu"))
        with torch.no_grad():
            before = forward(learner.policy.model, batch).logprobs
        other = make(tmp_path)
        other.step(samples, 0)
        with torch.no_grad():
            after = forward(other.policy.model, batch).logprobs
        advantages = algorithm.compute_advantages(samples)
        used = torch.tensor([any(sample.advantages) for sample in advantages])
        largest = (after - before)[used].masked_fill(~batch.mask[used], -9.0).max().exp()
        metrics = learner.step(samples, 0)
        assert metrics["learn/ratio_max"] == pytest.approx(largest.item(), rel=1e-3)


def test_mean_and_deviation_of_advantages_are_over_trained_tokens(tmp_path: Path) -> None:
    samples = [
        Sample((1,) * (2 + n), (False, *(True,) * (1 + n)), (0.0,) * (2 + n), reward=float(n),
               group="a")
        for n in (0, 1)
    ]  # fmt: skip
    metrics = make(tmp_path, algorithms["dr_grpo"].build({"name": "dr_grpo"})).step(samples, 0)
    # advantages -1/2 on one token and 1/2 on two: mean 1/6, mean of squares 1/4
    assert metrics["learn/advantage_std"] == pytest.approx((1 / 4 - 1 / 36) ** 0.5)
    assert metrics["learn/advantage_mean"] == pytest.approx(1 / 6)


def test_the_kl_to_the_start_of_the_stage_grows_from_zero(tmp_path: Path) -> None:
    learner = make(tmp_path, algorithms["grpo"].build({"name": "grpo", "kl": 0.1}))
    first = learner.step(random_samples(8), 0)["learn/kl"]
    second = learner.step(random_samples(8, seed=1), 1)["learn/kl"]
    assert first == pytest.approx(0.0, abs=1e-6)
    assert second > 1e-4


def test_a_lora_policy_trains_its_adapter_and_nothing_else(tmp_path: Path) -> None:
    learner = make(tmp_path, policy={"lora": {"rank": 2, "alpha": 4}})
    frozen = {
        n: p.detach().clone()
        for n, p in learner.policy.model.named_parameters()
        if not p.requires_grad
    }
    before = weights(learner)
    learner.step(random_samples(8), 0)
    assert all("lora_" in name for name in learner.policy.trainable)
    assert not torch.equal(weights(learner), before)
    now = dict(learner.policy.model.named_parameters())
    assert all(torch.equal(now[name], old) for name, old in frozen.items())


def test_a_fresh_adapter_has_the_base_model_as_reference_and_no_copy_of_it(tmp_path: Path) -> None:
    algorithm = algorithms["grpo"].build({"name": "grpo", "kl": 0.1})
    adapter: dict[str, Any] = {"lora": {"rank": 2, "alpha": 4}}
    policy = tiny_policy(tmp_path, **adapter)
    learner = Learner(run_settings(policy=adapter), algorithm, policy, steps=4, temperature=1.0)
    assert learner.reference is not None
    assert learner.reference.weights == {}
    assert learner.step(random_samples(8), 0)["learn/kl"] == pytest.approx(0.0, abs=1e-6)
    after = weights(learner)
    assert learner.step(random_samples(8, seed=1), 1)["learn/kl"] > 1e-4
    assert not torch.equal(weights(learner), after), "the adapter is on again, and learns"


def test_an_adapter_that_has_learned_is_its_own_reference(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path, lora={"rank": 2, "alpha": 4})
    for parameter in policy.trainable.values():
        parameter.data.add_(0.05)
    policy.save(tmp_path / "adapter")
    policy = load_policy(PolicySettings(model=str(tmp_path / "adapter"), device="cpu"))
    settings = run_settings()
    learner = Learner(
        settings, algorithms["dpo"].build({"name": "dpo"}), policy, steps=4, temperature=1.0
    )
    assert learner.reference is not None
    assert learner.reference.weights.keys() == policy.trainable.keys()
    assert learner.step(pairs(4), 0)["loss"] == pytest.approx(math.log(2), abs=1e-5)


def pairs(count: int) -> list[Sample]:
    """Two samples of very different lengths in each group, the first passed."""
    samples = random_samples(2 * count)
    return [replace(one, group=str(n // 2), passed=n % 2 == 0) for n, one in enumerate(samples)]


def test_dpo_learns_the_same_however_small_the_micro_batches_for_pairs_stay_together(
    tmp_path: Path,
) -> None:
    results = []
    for budget in (100_000, 40, 1):
        algorithm = algorithms["dpo"].build({"name": "dpo", "beta": 1.0, "epochs": 2})
        budgeted, optimizer = {"micro_batch_tokens": budget}, {"lr": 1e-2, "eps": 1.0}
        learner = make(tmp_path, algorithm, learner=budgeted, optimizer=optimizer)
        metrics = learner.step(pairs(6), 0)
        results.append((weights(learner), metrics["loss"]))
    assert results[0][1] < math.log(2) - 1e-4, "the second pass begins where the first has ended"
    for found in results[1:]:
        assert torch.allclose(found[0], results[0][0], atol=1e-6)
        assert found[1] == pytest.approx(results[0][1], rel=1e-4)


def test_every_pair_counts_the_same_in_dpo_however_long_its_completions(tmp_path: Path) -> None:
    algorithm = algorithms["dpo"].build({"name": "dpo"})
    (part,) = make(tmp_path, algorithm)._minibatches(algorithm.compute_advantages(pairs(5)), 0)
    shares: dict[str, float] = {}
    for sample in part:
        shares[sample.group] = shares.get(sample.group, 0.0) + sample.weight * sum(sample.mask)
    assert list(shares.values()) == pytest.approx([1 / 5] * 5)


def test_micro_batches_of_whole_groups_never_cut_one() -> None:
    for budget in (1, 40, 200):
        pieces = micro_batches(pairs(9), budget, packed=False, whole_groups=True)
        homes = [{sample.group for sample in piece} for piece in pieces]
        assert sum(map(len, homes)) == 9, "no group is in two pieces"
        assert all(
            len(home) == 1 or len(p) * max(len(s.tokens) for s in p) <= budget
            for home, p in zip(homes, pieces, strict=True)
        )


@pytest.mark.parametrize("mean", get_args(LossMean))
def test_the_mean_of_the_loss_is_over_the_whole_step_also_in_many_micro_batches(
    tmp_path: Path, mean: LossMean
) -> None:
    samples = random_samples(8)
    found = []
    for budget in (100_000, 30):
        algorithm = replace(algorithms["sft"].build({"name": "sft"}), loss_mean=mean)
        settings = {"learner": {"micro_batch_tokens": budget}, "rollout": {"max_tokens": 30}}
        found.append(make(tmp_path, algorithm, **settings).step(samples, 0)["loss"])
    learner = make(tmp_path)
    own = []
    for sample in samples:
        with torch.no_grad():
            logprobs = torch.log_softmax(
                learner.policy.model(torch.tensor([sample.tokens])).logits[0], -1
            )
        places = [place for place, on in enumerate(sample.mask) if on]
        own.append([-logprobs[place - 1, sample.tokens[place]].item() for place in places])
    groups = defaultdict[str, list[float]](list)
    for sample, losses in zip(samples, own, strict=True):
        groups[sample.group] += losses
    expected = {
        "prompts": fmean(map(fmean, groups.values())),
        "tokens": sum(map(sum, own)) / sum(map(len, own)),
        "completions": fmean(map(fmean, own)),
        "constant": sum(map(sum, own)) / 8 / 30,
    }[mean]
    assert found == pytest.approx([expected] * 2, rel=1e-4)


def test_minibatches_take_a_gradient_step_each_on_whole_groups(tmp_path: Path) -> None:
    algorithm = algorithms["grpo"].build({"name": "grpo", "minibatches": 2, "epochs": 2})
    learner = make(tmp_path, algorithm)
    samples = random_samples(16)
    parts = learner._minibatches(algorithm.compute_advantages(samples), 0)
    homes = [{sample.group for sample in part} for part in parts]
    assert homes[0] | homes[1] == {"0", "1", "2", "3"}
    assert not homes[0] & homes[1]
    assert all(sum(s.weight * sum(s.mask) for s in part) == pytest.approx(1.0) for part in parts)
    learner.step(samples, 0)
    assert isinstance(learner.optimizer, Optimizer)
    assert {state["step"].item() for state in learner.optimizer.adamw.state.values()} == {4.0}


def test_a_bonus_for_entropy_raises_it(tmp_path: Path) -> None:
    samples = [replace(sample, reward=0.0) for sample in random_samples(8)]
    found = []
    for bonus in (0.0, 1.0):
        algorithm = algorithms["grpo"].build({"name": "grpo", "entropy_bonus": bonus})
        learner = make(tmp_path, algorithm)
        learner.policy.model.lm_head.weight.data.mul_(20)
        found.append([learner.step(samples, step)["learn/entropy"] for step in range(3)])
    assert found[0] == [pytest.approx(found[1][0])] * 3, "without it, equal rewards teach nothing"
    assert found[1][2] > found[1][0] + 0.01


def test_the_critic_comes_to_expect_the_reward(tmp_path: Path) -> None:
    algorithm = algorithms["ppo"].build({"name": "ppo", "value_clip": 100.0, "epochs": 1})
    learner = make(tmp_path, algorithm, optimizer={"lr": 1e-3})
    samples = [replace(sample, reward=3.0) for sample in random_samples(8)]
    found = [learner.step(samples, step) for step in range(15)]
    assert found[0]["learn/value"] == 0.0
    assert found[0]["learn/value_error"] == pytest.approx(4.5)
    assert found[-1]["learn/value"] == pytest.approx(3.0, abs=0.5)


@pytest.mark.parametrize(
    "table",
    [
        {"name": "ppo", "epochs": 2, "minibatches": 2, "kl": 0.1, "kl_in": "reward"},
        {"name": "reinforce", "baseline": "running"},
    ],
    ids=["critic", "running baseline"],
)
def test_the_critic_and_the_running_baseline_are_saved_and_restored(
    tmp_path: Path, table: dict[str, Any]
) -> None:
    settings = run_settings(folder=str(tmp_path / "runs"), algorithm=table)
    batches = [random_samples(8, seed) for seed in range(3)]
    first, second = (
        Learner(settings, algorithms[table["name"]].build(table), tiny_policy(tmp_path), 4, 1.0)
        for _ in range(2)
    )
    folder = StageFolder(settings)
    first.step(batches[0], 0)
    folder.save(first, 1, {})
    expected = [first.step(batches[step], step) for step in (1, 2)]
    done = folder.restore(second, NoSource())
    again = [second.step(batches[step], step) for step in (done, done + 1)]
    for one, other in zip(expected, again, strict=True):
        assert {**one, "time/learn": 0} == {**other, "time/learn": 0}


def test_micro_batches_of_padded_sequences_keep_the_budget_and_lose_nothing() -> None:
    samples = random_samples(30)
    pieces = micro_batches(samples, 64, packed=False)
    assert sorted(id(s) for piece in pieces for s in piece) == sorted(id(s) for s in samples)
    assert all(
        len(piece) == 1 or len(piece) * max(len(s.tokens) for s in piece) <= 64 for piece in pieces
    )


def continuing(prompt: int, *lengths: int) -> list[Sample]:
    return [
        Sample((prompt,) * 10 + (1,) * n, (False,) * 10 + (True,) * n, group=str(prompt))
        for n in lengths
    ]


def test_micro_batches_of_packed_sequences_count_a_prompt_once_and_keep_its_samples_together() -> (
    None
):
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
    assert [len(piece) for piece in micro_batches([long, long], 10, packed=packed)] == [1, 1]


def test_a_batch_pads_on_the_right_and_masks_the_padding() -> None:
    samples = [
        Sample(
            (5, 6, 7),
            (False, True, True),
            logprobs=(0, -1, -2),
            advantages=(0, 3, 3),
            weight=0.5,
            group="x",
        ),
        Sample((8, 9), (False, True), values=(0, 4), weight=0.25, group="y"),
    ]
    batch = to_batch(samples, pad_token=0, device=torch.device("cpu"))
    assert batch.tokens.tolist() == [[5, 6, 7], [8, 9, 0]]
    assert batch.attention.tolist() == [[True] * 3, [True, True, False]]
    assert batch.mask.tolist() == [[False, True, True], [False, True, False]]
    assert batch.logprobs.tolist() == [[0, -1, -2], [0, 0, 0]]
    assert batch.advantages.tolist() == [[0, 3, 3], [0, 0, 0]]
    assert batch.weights.tolist() == [[0.5], [0.25]]
    assert batch.groups.tolist() == [0, 1]
    assert batch.values is not None
    assert batch.values.tolist() == [[0, 0, 0], [0, 4, 0]]
    assert batch.old_logprobs is None


def test_a_step_that_lost_every_rollout_to_the_machine_changes_nothing(tmp_path: Path) -> None:
    learner = make(tmp_path)
    before = weights(learner)
    assert learner.step([], 0)["learn/tokens"] == 0.0
    assert torch.equal(weights(learner), before)


def test_two_threads_learn_the_same_to_the_bit(tmp_path: Path) -> None:
    """Eight completions continue one prompt: what its last token passes back must be added up in
    one order.
    """
    policy = tiny_policy(tmp_path)
    rows = torch.randint(2, 300, (8, 420), generator=torch.Generator().manual_seed(0))
    rows[:, :300] = rows[0, :300]
    batch = to_batch(
        [Sample(tuple(row), (False,) * 300 + (True,) * 120) for row in rows.tolist()],
        0,
        policy.device,
    )
    found, threads = [], torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(15):
            (slope,) = torch.autograd.grad(
                forward(policy.model, batch).logprobs.sum(),
                [policy.model.get_input_embeddings().weight],
            )
            found.append(slope)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, found[0]) for one in found)


@pytest.mark.parametrize(
    ("table", "passes"),
    [
        ({"name": "grpo"}, 1),
        ({"name": "grpo", "kl": 0.1}, 2),
        ({"name": "grpo", "epochs": 2}, 3),
        ({"name": "ppo", "epochs": 1}, 2),
        ({"name": "dpo", "epochs": 2}, 3),
    ],
)
def test_no_forward_pass_is_repeated_and_no_reference_runs_without_a_kl_penalty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: dict[str, Any], passes: int
) -> None:
    calls = 0

    def counted(*given: Any, **named: Any) -> ModelOutput:
        nonlocal calls
        calls += 1
        return forward(*given, **named)

    monkeypatch.setattr(ranks_module, "forward", counted)
    samples = [replace(sample, passed=sample.reward > 0) for sample in random_samples(8)]
    make(tmp_path, algorithms[table["name"]].build(table)).step(samples, 0)
    assert calls == passes


def test_which_groups_share_a_minibatch_does_not_depend_on_micro_batches(tmp_path: Path) -> None:
    losses = []
    for budget in (100_000, 60, 30):
        algorithm = algorithms["ppo"].build({"name": "ppo", "minibatches": 2, "epochs": 1})
        learner = make(tmp_path, algorithm, learner={"micro_batch_tokens": budget})
        losses.append(learner.step(random_samples(32), 0)["loss"])
    assert losses[1:] == pytest.approx(losses[:1] * 2, rel=1e-4)


NATS_A_TOKEN = 0.04
"""What bfloat16 rounds a log-probability of a pretrained model by (bench/gradient_noise.py)."""


def rounded_samples(folder: Path, noise: float) -> list[Sample]:
    """Completions of 120 tokens with the policy's own log-probabilities, off by some rounding."""
    draw, policy = torch.Generator().manual_seed(1), tiny_policy(folder)
    samples = []
    for number in range(8):
        tokens = torch.randint(2, 300, (124,), generator=draw).tolist()
        mask = (False,) * 4 + (True,) * 120
        sample = Sample(tokens, mask, reward=float(number % 3 == 0), group=str(number // 4))
        with torch.no_grad():
            batch = to_batch([sample], policy.pad_token, policy.device)
            exact = forward(policy.model, batch).logprobs[0]
        wrong = torch.randn(124, generator=draw) * noise
        samples.append(replace(sample, logprobs=(exact + wrong * batch.mask[0]).tolist()))
    return samples


def gradient(folder: Path, samples: list[Sample], dtype: str, **algorithm: Any) -> torch.Tensor:
    """That of one step: the optimizer's first moment, without decay and clipping."""
    plain = {"lr": 1e-9, "betas": (0.0, 0.9), "max_grad_norm": 1e9}
    chosen = algorithms[algorithm["name"]].build(algorithm)
    learner = make(folder, chosen, {"dtype": dtype}, optimizer=plain)
    learner.step(samples, 0)
    moments = learner.optimizer.tensors.items()
    return torch.cat([value.flatten() for key, value in moments if key.endswith("|exp_avg")])


@pytest.mark.parametrize("name", ["rloo", "gspo"])
def test_rounding_in_bfloat16_hardly_turns_the_gradient_of_long_completions(
    tmp_path: Path, name: str
) -> None:
    exact, rounded = (rounded_samples(tmp_path, noise) for noise in (0.0, NATS_A_TOKEN))
    reference = gradient(tmp_path, exact, "float32", name=name)

    def cosine(**options: Any) -> float:
        found = gradient(tmp_path, rounded, "bfloat16", name=name, **options)
        return torch.nn.functional.cosine_similarity(found, reference, dim=0).item()

    assert cosine() > 0.98
    assert cosine(importance_sampling="sequence_truncate") < 0.96, "products are no default"
