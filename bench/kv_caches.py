"""The KV cache that the engine's probe chooses for each model, how exact decoding with it is, and
what it saves over several turns.

    python -m bench.kv_caches [--model FOLDER ...]

Each model in float32 and bfloat16, without and with LoRA: the pretrained models named, and small
random ones of four architectures. In float32 the error is the largest difference of a logit from
that of a full forward pass, in standard deviations over the vocabulary. In bfloat16 it is the mean
error of a sampled token's log-probability against the same weights in float32, beside that of the
model's own full forward pass. LoRA is measured with noise on its weights, as the probe does.

Rollouts of three turns, with random tokens: 2 prompts of 100 to 200 tokens with 8 rollouts each,
completions of 30 to 60 tokens, and 20 to 40 that the environment shows after each. Once each turn
prefills the whole conversation, once what is new of it, in turns; a ratio is of the CPU time of the
engine. A third time the whole conversation again, to see how many rollouts differ without a cause:
rows that run at once depend on time, and the rounding of a product on its number of rows.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from assay.config.sections import LoraSettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.torch import TorchEngine
from assay.engines.torch.cache_probe import EXACT, TIMES_OWN, caches_of, choose_cache, errors_of
from assay.policy.adapters import with_adapter
from assay.policy.forward import perturbed
from assay.policy.load_model import Policy
from bench.generate import make
from bench.sizes import SIZES, pretrained, table

ARCHITECTURES = "Llama", "Qwen3", "GPT2", "Gemma2"
SHAPE = {
    "vocab_size": 1024, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "pad_token_id": 0,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
TURNS = 3
TURN_COLUMNS = (
    "times faster", "seconds, all prefilled again", "only what is new", "tokens prefilled",
    "only new ones", "rollouts that differ", "if all is prefilled twice",
)  # fmt: skip
COLUMNS = "cache", "error", "the model's own", "limit", "seconds of the probe"


def random_model(name: str, dtype: str) -> Any:
    """A small model with random weights, the same at each call."""
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SHAPE)
    model = transformers.AutoModelForCausalLM
    return model.from_config(config, dtype=getattr(torch, dtype))


def models(folders: list[str], dtype: str) -> Iterator[tuple[str, Any]]:
    """Each model with its name, one at a time."""
    for folder in folders:
        yield Path(folder).resolve().name, pretrained(folder).model(dtype)
    for name in ARCHITECTURES:
        yield f"random {name}", random_model(name, dtype)


def probe(model: Any) -> dict[str, str]:
    """What the probe chooses for a model, by column."""
    start = time.perf_counter()
    kind = choose_cache(model)
    seconds = time.perf_counter() - start
    with perturbed(model):
        error, own_error = errors_of(model, caches_of(model)[kind])
    cells = f"{error:.1e}", "", f"{EXACT:.0e}"
    if own_error is not None:
        cells = f"{error:.4f}", f"{own_error:.4f}", f"{TIMES_OWN * own_error:.4f}"
    return dict(zip(COLUMNS, (kind, *cells, f"{seconds:.2f}"), strict=True))


class Rollout:
    """Three turns of one rollout; `keeps` tells the engine of further turns."""

    def __init__(self, prompt: tuple[int, ...], vocabulary: int, seed: int, keeps: bool) -> None:
        self.prompt, self.vocabulary, self.seed, self.keeps = prompt, vocabulary, seed, keeps

    async def run(self, engine: TorchEngine) -> tuple[int, ...]:
        """All of its tokens."""
        draw, prompt = random.Random(self.seed), self.prompt
        for turn in range(TURNS):
            request = GenerationRequest(prompt, turn, (), self, self.keeps and turn < TURNS - 1)
            completion = await engine.generate(request, Sampling(draw.randint(30, 60)))
            addition = draw.choices(range(self.vocabulary), k=draw.randint(20, 40))
            prompt = (*prompt, *completion.tokens, *addition)
        return prompt


async def turns(policy: Policy, vocabulary: int, rounds: int) -> dict[str, str]:
    """What keeping keys and values over turns saves, by column."""
    engine, prefilled = TorchEngine(policy), [0]

    def count(module: Any, positional: Any, keywords: dict[str, Any]) -> None:
        prefilled[0] += keywords["input_ids"].numel()

    engine.check()
    policy.model.register_forward_pre_hook(count, with_kwargs=True)
    ways = {"again": False, "continued": True, "control": False}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    tokens: dict[str, list[int]] = {way: [] for way in ways}
    texts: dict[str, list[tuple[int, ...]]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, keeps in ways.items():
            await engine.load(policy, number)
            draw, before, start = random.Random(number), prefilled[0], time.process_time()
            prompts = [
                tuple(draw.choices(range(vocabulary), k=draw.randint(100, 200))) for _ in range(2)
            ]
            rollouts = [Rollout(prompts[n % 2], vocabulary, n, keeps) for n in range(16)]
            texts[way] += await asyncio.gather(*(rollout.run(engine) for rollout in rollouts))
            seconds[way].append(time.process_time() - start)
            tokens[way].append(prefilled[0] - before)
    again, continued = (seconds[way][1:] for way in ("again", "continued"))  # the first warms up
    ratios = [old / new for old, new in zip(again, continued, strict=True)]
    medians = [statistics.median(each) for each in (again, continued)]
    ratio = f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"
    counts = [f"{statistics.median(tokens[way][1:]):,.0f}" for way in ("again", "continued")]
    differing = [
        sum(text != other for text, other in zip(texts["again"], texts[way], strict=True))
        for way in ("continued", "control")
    ]
    cells = [ratio, *(f"{median:.2f}" for median in medians), *counts]
    cells += [f"{number} of {len(texts['again'])}" for number in differing]
    return dict(zip(TURN_COLUMNS, cells, strict=True))


def main() -> None:
    """Probe every model, and print a table of the probes and one of several turns."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", nargs="+", metavar="FOLDER", default=[])
    parser.add_argument("--rounds", type=int, default=5, help="of rollouts of three turns")
    parser.add_argument("--only-turns", action="store_true", help="leave out the probes")
    parser.add_argument("--dtype", default="float32", help="of rollouts of three turns")
    arguments = parser.parse_args()
    rows = {}
    for dtype in () if arguments.only_turns else ("float32", "bfloat16"):
        for name, model in models(arguments.model, dtype):
            row = f"{name}, {dtype}"
            rows[row] = probe(model.eval())
            adapted = with_adapter(model, None, LoraSettings())
            rows[f"{row}, LoRA"] = probe(adapted.eval())
    threads = torch.get_num_threads()
    print(f"{threads} threads, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}")
    if rows:
        print(table(COLUMNS, rows))
    rows = {}
    for size in (SIZES["small"], *map(pretrained, arguments.model)):
        policy = make(size, arguments.dtype, argparse.Namespace(device="cpu", fixed=True))
        rows[size.label] = asyncio.run(turns(policy, size.vocabulary, arguments.rounds))
    print(table(TURN_COLUMNS, rows))


if __name__ == "__main__":
    main()
