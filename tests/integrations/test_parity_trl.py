"""Our losses are TRL's on the same log-probabilities: its own trainers' loss methods are called
with given tensors.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.algorithms import algorithms
from assay.maths.advantages import completion_advantages
from assay.maths.masked import masked_sum
from assay.policy.forward import ModelOutput, forward
from assay.train.batch import to_batch, with_weights
from assay.types import Sample
from tests.policies import checkpoint

trl = pytest.importorskip("trl", reason="TRL is not installed; pip install -e '.[integrations]'")

LIMIT = 9
CLIP = {"clip_low": 0.2, "clip_high": 0.28, "importance_sampling": "none"}
TRL_CLIP = {"epsilon": 0.2, "epsilon_high": 0.28}
TABLE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo": ({"name": "grpo", "loss_mean": "completions", **CLIP}, {"loss_type": "grpo",
    **TRL_CLIP}),
    "grpo, k3 in the loss": (
        {"name": "grpo", "loss_mean": "completions", "kl": 0.3, **CLIP},
        {"loss_type": "grpo", "beta": 0.3, "use_bias_correction_kl": True, **TRL_CLIP},
    ),
    "dapo": ({"name": "dapo", **CLIP}, {"loss_type": "dapo", **TRL_CLIP}),
    "dapo, entropy bonus": (
        {"name": "dapo", "entropy_bonus": 0.05, **CLIP},
        {"loss_type": "dapo", "entropy_coef": 0.05, **TRL_CLIP},
    ),
    "dr_grpo": ({"name": "dr_grpo", **CLIP}, {"loss_type": "dr_grpo", **TRL_CLIP}),
    "cispo": (
        {"name": "cispo", "clip_high": 0.5, "importance_sampling": "none"},
        {"loss_type": "cispo", "epsilon_high": 1.5},
    ),
    "gspo": (
        {"name": "gspo", "clip_low": 0.02, "clip_high": 0.03, "importance_sampling": "none"},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.02,
        "epsilon_high": 0.03},
    ),
    **{
        f"dapo, {mode}": (
            {"name": "dapo", **CLIP, "importance_sampling": mode, "importance_sampling_min": 0.8,
            "importance_sampling_max": 1.3},
            {
                "loss_type": "dapo", "vllm_importance_sampling_mode": mode,
                "vllm_importance_sampling_clip_min": 0.8, "vllm_importance_sampling_clip_max": 1.3,
                **TRL_CLIP,
            },
        )
        for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
    },
}  # fmt: skip


def make_samples(seed: int = 0) -> list[Sample]:
    """Six completions of two tasks, off-policy by about a tenth of a nat, with everything that a
    loss may want.
    """
    draw = torch.Generator().manual_seed(seed)
    samples = []
    for number in range(6):
        prompt, length = (
            int(torch.randint(low, high, (), generator=draw)) for low, high in ((2, 6), (2, LIMIT))
        )
        mask = (False,) * prompt + (True,) * length
        tokens = tuple(torch.randint(2, 300, (prompt + length,), generator=draw).tolist())

        def numbers(spread: float, mask: tuple[bool, ...] = mask) -> tuple[float, ...]:
            found = -3 + spread * torch.randn(len(mask), generator=draw)
            return tuple(float(value) if on else 0.0 for value, on in zip(found, mask, strict=True))

        advantage = float(torch.randn((), generator=draw))
        samples.append(
            Sample(
                tokens, mask, logprobs=numbers(0.15), old_logprobs=numbers(0.1),
                reference_logprobs=numbers(0.5),
                advantages=tuple(advantage * on for on in mask), group=str(number // 2),
                limit=LIMIT,
            )
        )  # fmt: skip
    return samples


def ours(
    settings: dict[str, Any], samples: list[Sample], logprobs: torch.Tensor, entropy: torch.Tensor
) -> torch.Tensor:
    algorithm = algorithms[settings["name"]].build(settings)
    batch = to_batch(with_weights(samples, algorithm.loss_mean, LIMIT), 0, torch.device("cpu"))
    losses, _ = algorithm.loss(ModelOutput(logprobs, entropy), batch)
    return masked_sum(losses * batch.weights, batch.mask)


def shifted(samples: list[Sample], name: str) -> torch.Tensor:
    """[B, C] per-token numbers of the completions alone, as TRL lays them out."""
    rows = [
        [value for value, on in zip(getattr(s, name), s.mask, strict=True) if on] for s in samples
    ]
    return torch.tensor([row + [0.0] * (LIMIT - len(row)) for row in rows])


def place(values: torch.Tensor, samples: list[Sample], width: int) -> torch.Tensor:
    """[B, T] numbers of completions at the places where our batch has them."""
    found = torch.zeros(len(samples), width)
    for row, sample in enumerate(samples):
        start, length = sample.mask.index(True), sum(sample.mask)
        found[row, start : start + length] = values[row, :length]
    return found


def trl_inputs(samples: list[Sample]) -> dict[str, Any]:
    prompts = [[t for t, on in zip(s.tokens, s.mask, strict=True) if not on] for s in samples]
    answers = [[t for t, on in zip(s.tokens, s.mask, strict=True) if on] for s in samples]
    widest = max(map(len, prompts))
    return {
        "prompt_ids": torch.tensor([[0] * (widest - len(p)) + p for p in prompts]),
        "prompt_mask": torch.tensor([[0] * (widest - len(p)) + [1] * len(p) for p in prompts]),
        "completion_ids": torch.tensor([a + [0] * (LIMIT - len(a)) for a in answers]),
        "completion_mask": torch.tensor([[1] * len(a) + [0] * (LIMIT - len(a)) for a in answers]),
        "advantages": torch.tensor([s.advantages[-1] for s in samples]),
        "num_items_in_batch": torch.tensor(float(sum(map(len, answers)))),
        "old_per_token_logps": shifted(samples, "old_logprobs"),
        "ref_per_token_logps": shifted(samples, "reference_logprobs"),
    }


def moved(inputs: dict[str, Any], spread: float) -> torch.Tensor:
    """[B, C] log-probabilities of a policy that has gone on by `spread` nats a token."""
    noise = torch.randn(6, LIMIT, generator=torch.Generator().manual_seed(1))
    found: torch.Tensor = (inputs["old_per_token_logps"] + spread * noise).requires_grad_()
    return found


def trainer(kind: str, folder: Path, **settings: Any) -> Any:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    made = checkpoint(folder, "llama")
    common = {"output_dir": str(folder / "out"), "use_cpu": True, "bf16": False, "report_to": []}
    common |= {"gradient_checkpointing": False}
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(made),
        AutoTokenizer.from_pretrained(made),
    )
    if kind == "DPO":
        rows = {"prompt": ["p"], "chosen": ["a"], "rejected": ["b"]}
    else:
        rows = {"prompt": ["p"]}
        common |= {
            "max_completion_length": LIMIT,
            "num_generations": 2,
            "per_device_train_batch_size": 2,
        }
    given = {
        "args": getattr(trl, f"{kind}Config")(**common, **settings),
        "train_dataset": Dataset.from_dict(rows),
    }
    if kind != "DPO":
        given["reward_funcs"] = lambda completions, **_: [0.0] * len(completions)
    found = getattr(trl, f"{kind}Trainer")(model=model, processing_class=tokenizer, **given)
    found.model.eval()
    return found


def compare(theirs: Any, own: torch.Tensor, logprobs: torch.Tensor) -> None:
    """Equal losses, and equal gradients with respect to the log-probabilities."""
    assert own.item() == pytest.approx(theirs.item(), abs=1e-6)
    assert abs(own.item()) > 1e-3
    (expected,), (found,) = (
        torch.autograd.grad(loss, logprobs, retain_graph=True) for loss in (theirs, own)
    )
    assert expected.abs().max() > 1e-3
    assert torch.allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", TABLE)
def test_losses_and_gradients_are_those_of_trls_grpo_trainer(tmp_path: Path, name: str) -> None:
    settings, theirs = TABLE[name]
    given, samples = trainer("GRPO", tmp_path, **theirs), make_samples()
    inputs = trl_inputs(samples)
    logprobs = moved(inputs, 0.2)
    entropies = 1 + logprobs.square()
    given._get_per_token_logps_and_entropies = lambda *_, **__: (logprobs, entropies, None)
    if mode := theirs.get("vllm_importance_sampling_mode"):
        given.use_vllm = True
        inputs["importance_sampling_ratio"] = their_weights(samples, inputs, mode)
    loss = given._compute_loss(given.model, inputs)
    width = max(len(sample.tokens) for sample in samples)
    own = ours(settings, samples, place(logprobs, samples, width), place(entropies, samples, width))
    compare(loss, own, logprobs)


def their_weights(samples: list[Sample], inputs: dict[str, Any], mode: str) -> torch.Tensor:
    """As TRL's `_generate_and_score_completions` has them, where they are no function of their
    own.
    """
    difference = (inputs["old_per_token_logps"] - shifted(samples, "logprobs")) * inputs[
        "completion_mask"
    ]
    weights: torch.Tensor = (
        difference.sum(-1, keepdim=True) if mode.startswith("sequence") else difference
    ).exp()
    masked: torch.Tensor = weights.masked_fill((weights < 0.8) | (weights > 1.3), 0.0)
    return weights.clamp(0.8, 1.3) if mode.endswith("truncate") else masked


def test_the_loss_of_rloo_is_that_of_trls_trainer(tmp_path: Path) -> None:
    given, samples = trainer("RLOO", tmp_path, epsilon=0.2), make_samples()
    inputs = trl_inputs(samples)
    inputs["old_logps"] = inputs["old_per_token_logps"].sum(-1)
    logprobs = moved(inputs, 0.1)
    given._get_per_token_logps_and_entropies = lambda *_, **__: (logprobs, logprobs.detach(), None)
    loss = given._compute_loss(given.model, inputs)
    width = max(len(sample.tokens) for sample in samples)
    placed = place(logprobs, samples, width)
    compare(
        loss,
        ours({"name": "rloo", "importance_sampling": "none"}, samples, placed, placed),
        logprobs,
    )


def test_the_loss_of_dpo_is_that_of_trls_trainer(tmp_path: Path) -> None:
    given = trainer("DPO", tmp_path, beta=0.3, precompute_ref_log_probs=False)
    given.precompute_ref_logps = True
    samples = [
        replace(s, advantages=tuple((1.0, -1.0)[n % 2] * on for on in s.mask))
        for n, s in enumerate(make_samples())
    ]
    chosen_first = samples[::2] + samples[1::2]
    batch = to_batch(chosen_first, 0, torch.device("cpu"))
    logprobs = (-3 + torch.randn(batch.tokens.shape)).masked_fill(~batch.mask, 0.0).requires_grad_()
    inputs = {
        "input_ids": batch.tokens,
        "attention_mask": batch.attention,
        "completion_mask": batch.mask.long(),
    }
    assert batch.reference_logprobs is not None
    inputs |= dict(
        zip(
            ("ref_chosen_logps", "ref_rejected_logps"),
            batch.reference_logprobs.sum(-1).chunk(2),
            strict=True,
        )
    )

    def model(**_: Any) -> Any:
        masked = logprobs[:, 1:].masked_fill(~batch.mask[:, 1:], 0.0)
        zeros = torch.zeros_like(masked)
        return SimpleNamespace(
            log_probs=masked, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool()
        )

    loss = given._compute_loss(model, inputs, return_outputs=False)
    compare(loss, ours({"name": "dpo", "beta": 0.3}, chosen_first, logprobs, logprobs), logprobs)


def test_through_the_model_itself_the_gradients_of_all_weights_are_trls(tmp_path: Path) -> None:
    given, samples = trainer("GRPO", tmp_path, loss_type="dapo", **TRL_CLIP), make_samples()
    inputs = trl_inputs(samples)
    del inputs["old_per_token_logps"]
    given._compute_loss(given.model, inputs).backward()
    expected = {
        name: p.grad.clone() for name, p in given.model.named_parameters() if p.grad is not None
    }
    given.model.zero_grad()
    algorithm = algorithms["dapo"].build({"name": "dapo", **CLIP})
    on_policy = [replace(sample, old_logprobs=()) for sample in samples]
    batch = to_batch(with_weights(on_policy, algorithm.loss_mean, LIMIT), 0, torch.device("cpu"))
    losses, _ = algorithm.loss(forward(given.model, batch), batch)
    torch.autograd.backward(masked_sum(losses * batch.weights, batch.mask))
    for name, parameter in given.model.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(
            parameter.grad, expected[name], rtol=0, atol=1e-6 * max(1, expected[name].abs().max())
        ), name


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_are_trls_but_for_its_deviation_of_samples_and_its_epsilon(scale: Any) -> None:
    from trl.trainer.utils import nanstd

    rewards, groups = (
        torch.tensor([1.0, 0.0, 0.5, 0.0, 0.25, 0.75]),
        torch.tensor([0, 0, 0, 1, 1, 1]),
    )
    means = rewards.view(2, 3).mean(1).repeat_interleave(3)
    deviations = {
        "group": nanstd(rewards.view(2, 3), dim=1).repeat_interleave(3),
        "batch": nanstd(rewards),
        "none": 1,
    }
    theirs = (rewards - means) / deviations[scale]
    bessel = {"group": (2 / 3) ** 0.5, "batch": (5 / 6) ** 0.5, "none": 1.0}[scale]
    assert (
        completion_advantages(rewards, groups, "group", scale) * bessel
    ).tolist() == pytest.approx(theirs.tolist(), rel=1e-5)
