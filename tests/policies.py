"""Small models in Hugging Face format, made on the spot, and tasks to go with them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from assay.config.sections import PolicySettings, RunSettings, TinySettings
from assay.policy.load_model import Policy, load_policy
from assay.policy.tiny import make_tiny
from assay.train.sources import Source, StepData
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


def seven_tokens() -> Policy:
    """Seven tokens, far from uniform; a completion ends at its limit only."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    config = LlamaConfig(vocab_size=7, bos_token_id=None, eos_token_id=None, **shape)
    model = LlamaForCausalLM(config).eval()
    model.lm_head.weight.data.mul_(8)
    chat: Any = SimpleNamespace(stop_tokens=frozenset(), text=lambda tokens: "")
    return Policy(model, chat, torch.device("cpu"), 0)


def checkpoint(
    folder: Path,
    kind: str,
    template: str | None = None,
    *,
    tokenizer: Any = None,
    special: tuple[str, ...] = (),
) -> Path:
    """A random model of the given architecture in Hugging Face format, by default with the tiny
    tokenizer.
    """
    import transformers

    if tokenizer is None:
        made = make_tiny(folder / "tiny", TASKS, TinySettings(vocabulary=300), 0)
        tokenizer = transformers.AutoTokenizer.from_pretrained(made)
    tokenizer.add_tokens(list(special), special_tokens=True)
    if template:
        tokenizer.chat_template = template
    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }  # fmt: skip
    name = {
        "llama": "Llama",
        "qwen2": "Qwen2",
        "gemma2": "Gemma2",
        "gpt2": "GPT2",
        "mistral": "Mistral",
        "qwen3": "Qwen3",
    }[kind]
    head = "LMHeadModel" if kind == "gpt2" else "ForCausalLM"
    torch.manual_seed(0)
    model = getattr(transformers, name + head)(getattr(transformers, f"{name}Config")(**shape))
    model.save_pretrained(folder / kind)
    tokenizer.save_pretrained(folder / kind)
    return folder / kind


def change_json(file: Path, **changes: Any) -> None:
    """Set keys of a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def sentencepiece_style() -> Any:
    """A tokenizer as Llama 2's: a space before every text, one space off every text that is
    decoded.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    pieces = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *map(chr, range(33, 127)),
    ]
    pieces += ["\u2581", "\u2581" * 2, "\u2581" * 4, "\n", "\n\n", "xs"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    merges = [("\u2581", "\u2581"), ("\u2581" * 2, "\u2581" * 2), ("\n", "\n"), ("x", "s")]
    bpe = Tokenizer(
        models.BPE(
            vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True
        )
    )
    bpe.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    bpe.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def run_settings(**changes: Any) -> RunSettings:
    given = {
        "steps": 4,
        "stage": "test",
        "algorithm": {"name": "grpo"},
        "optimizer": {"lr": 1e-2},
        "tasks": {"train": "drills:train"},
    }
    return RunSettings.model_validate(given | changes)


class NoSource(Source):
    """A source that only a checkpoint asks for."""

    temperature = steps_per_epoch = 1.0

    async def next(self, step: int) -> StepData:
        raise AssertionError(step)

    def longest(self, tokens: int) -> list[Sample]:
        raise AssertionError(tokens)


def random_samples(count: int, seed: int = 0, vocabulary: int = 300) -> list[Sample]:
    """Samples of differing lengths, in groups of four with differing rewards."""
    draw = torch.Generator().manual_seed(seed)
    samples = []
    for number in range(count):
        prompt, completion = (
            int(torch.randint(low, high, (), generator=draw)) for low, high in ((3, 9), (2, 20))
        )
        tokens = torch.randint(2, vocabulary, (prompt + completion,), generator=draw).tolist()
        mask = (False,) * prompt + (True,) * completion
        reward = float(torch.randint(0, 2, (), generator=draw))
        logprobs = tuple(-1.0 if trained else 0.0 for trained in mask)
        samples.append(
            Sample(tuple(tokens), mask, logprobs=logprobs, reward=reward, group=str(number // 4))
        )
    return samples
