"""4-bit weights through bitsandbytes: the gradients are those of the dequantised model, also after
a rollout.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from assay.algorithms import algorithms
from assay.config.sections import LoraSettings, PolicySettings, TinySettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.torch import TorchEngine
from assay.policy.forward import forward
from assay.policy.load_model import Policy, load_policy
from assay.policy.tiny import make_tiny
from assay.train.batch import to_batch
from assay.train.folder import StageFolder
from assay.train.learner import Learner
from tests.distributed.launch import run
from tests.distributed.test_ranks import assert_equal
from tests.policies import TASKS, NoSource, random_samples, run_settings

bitsandbytes = pytest.importorskip("bitsandbytes")
LORA = LoraSettings(rank=4, alpha=8)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Widths are multiples of 64: others cannot be packed anew, which is what a rollout must not
    do.
    """
    return make_tiny(
        tmp_path / "tiny", TASKS, TinySettings(vocabulary=300, width=64, layers=2, heads=2), seed=0
    )


def quantized(model: Path) -> Policy:
    torch.manual_seed(3)
    policy = load_policy(PolicySettings(model=str(model), device="cpu", quantize="nf4", lora=LORA))
    for name, parameter in policy.trainable.items():
        if "lora_B" in name:  # zero at first, which would hide what flows through the other half
            torch.nn.init.normal_(parameter, std=0.1)
    return policy


def dequantised(policy: Policy, model: Path) -> Policy:
    """The same policy with plain float32 weights of the values that the packed ones stand for."""
    plain = load_policy(PolicySettings(model=str(model), device="cpu", lora=LORA))
    packed = dict(policy.model.named_modules())
    for name, module in plain.model.named_modules():
        if isinstance(packed[name], bitsandbytes.nn.Linear4bit):
            weight = packed[name].weight
            module.weight.data = bitsandbytes.functional.dequantize_4bit(
                weight.data, weight.quant_state
            ).float()
    for name, parameter in policy.trainable.items():
        plain.trainable[name].data.copy_(parameter.data)
    return plain


def write_some(policy: Policy) -> None:
    async def write() -> None:
        engine = TorchEngine(policy)
        await asyncio.gather(
            *(engine.generate(GenerationRequest((5, 6, 7), seed), Sampling(6)) for seed in range(4))
        )

    asyncio.run(write())


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    batch = to_batch(random_samples(6), policy.pad_token, policy.device)
    policy.model.eval()
    (-forward(policy.model, batch).logprobs.sum() / batch.mask.sum()).backward()  # type: ignore[no-untyped-call]
    return {name: p.grad for name, p in policy.trainable.items() if p.grad is not None}


def test_a_step_after_a_rollout_has_the_gradients_of_the_dequantised_model(model: Path) -> None:
    policy = quantized(model)
    plain = dequantised(policy, model)
    write_some(policy)
    found, expected = gradients(policy), gradients(plain)
    assert found.keys() == expected.keys() == policy.trainable.keys()
    for name, gradient in found.items():
        assert expected[name].norm() > 0
        assert (gradient - expected[name]).norm() < 1e-3 * expected[name].norm(), name


def test_the_weights_take_four_bits_and_differ_from_the_originals(model: Path) -> None:
    packed = [
        m for m in quantized(model).model.modules() if isinstance(m, bitsandbytes.nn.Linear4bit)
    ]
    assert len(packed) == 2 * 7
    assert {m.weight.quant_type for m in packed} == {"nf4"}
    assert sum(m.weight.numel() for m in packed) == 2 * (4 * 64 * 64 + 3 * 64 * 192) // 2, (
        "two weights to a byte"
    )


def test_a_resumed_run_has_the_same_gradients_to_the_bit(model: Path, tmp_path: Path) -> None:
    policy = {"model": str(model), "device": "cpu", "quantize": "nf4", "lora": LORA.model_dump()}
    settings = run_settings(policy=policy, folder=str(tmp_path / "runs"))
    algorithm = algorithms["grpo"].build(settings.algorithm)
    learner = Learner(settings, algorithm, quantized(model), steps=4, temperature=1.0)
    learner.step(random_samples(8), 0)
    folder = StageFolder(settings)
    folder.save(learner, 1, {})
    resumed = Learner(settings, algorithm, load_policy(settings.policy), steps=4, temperature=1.0)
    saved = folder.latest()
    assert saved
    assert folder.restore(resumed, NoSource()) == 1
    assert not list(saved.glob("model*.safetensors")), "the adapter alone is saved"
    write_some(learner.policy)
    for step in (1, 2):
        norms = [
            one.step(random_samples(8, seed=step), step)["learn/grad_norm"]
            for one in (learner, resumed)
        ]
        assert norms[0] == norms[1] != 0.0


@pytest.mark.long
def test_two_ranks_learn_what_one_learns_though_the_packed_weights_stay_whole(
    tmp_path: Path,
) -> None:
    for ranks in (1, 2):
        run(ranks, "tests.distributed.learn", str(tmp_path / f"{ranks}"), "grpo-lora-nf4")
    assert_equal(tmp_path / "2" / "grpo-lora-nf4", tmp_path / "1" / "grpo-lora-nf4")
