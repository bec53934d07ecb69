"""Small models in Hugging Face format, made on the spot, and tasks to go with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from assay.config.sections import PolicySettings, RunSettings, TinySettings
from assay.policy.load import Policy, load_policy
from assay.policy.tiny import make_tiny
from assay.types import Check, Sample, Task

TASKS = [
    Task(
        id=f"t/{n}",
        prompt=f"# f(xs): keep the even numbers, add {n}\n",
        checks=(Check(f"assert f([2, 3]) == [{2 + n}]"),),
        entry_point="f",
        reference=f"def f(xs):\n    return [x + {n} for x in xs if x % 2 == 0]\n",
    )
    for n in range(12)
]


def tiny_policy(folder: Path, **changes: Any) -> Policy:
    shape = TinySettings(vocabulary=300, width=64, layers=2, heads=2, context=256)
    made = make_tiny(folder / "tiny", TASKS, shape, seed=0)
    return load_policy(PolicySettings(model=str(made), device="cpu", **changes))


def checkpoint(folder: Path, kind: str, template: str | None = None) -> Path:
    """A random model of the given architecture with the tiny tokenizer, in Hugging Face format."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(make_tiny(folder / "tiny", TASKS, TinySettings(vocabulary=300), 0))
    if template:
        tokenizer.chat_template = template
    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**shape)) if kind == "llama" else Qwen2ForCausalLM(Qwen2Config(**shape))
    model.save_pretrained(folder / kind)
    tokenizer.save_pretrained(folder / kind)
    return folder / kind


def run_settings(**changes: Any) -> RunSettings:
    given = {
        "steps": 4,
        "stage": "test",
        "algorithm": {"name": "grpo"},
        "optimizer": {"lr": 1e-2},
        "tasks": {"train": "drills:train"},
    }
    return RunSettings.model_validate(given | changes)


def random_samples(count: int, seed: int = 0, vocabulary: int = 300) -> list[Sample]:
    """Samples of differing lengths, in groups of four with differing rewards."""
    draw = torch.Generator().manual_seed(seed)
    samples = []
    for number in range(count):
        prompt, completion = (int(torch.randint(low, high, (), generator=draw)) for low, high in ((3, 9), (2, 20)))
        tokens = torch.randint(2, vocabulary, (prompt + completion,), generator=draw).tolist()
        mask = (False,) * prompt + (True,) * completion
        reward = float(torch.randint(0, 2, (), generator=draw))
        logprobs = tuple(-1.0 if trained else 0.0 for trained in mask)
        samples.append(Sample(tuple(tokens), mask, logprobs=logprobs, reward=reward, group=str(number // 4)))
    return samples
