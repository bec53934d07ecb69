"""Tokens a second of the torch engine beside transformers' generate, on one CPU thread or on a GPU.

    python -m bench.generate [--vllm .venv-vllm/bin/python]

A random Llama; prompts of 32 to 96 tokens; tokens 0 to 19 end a completion, which makes them about
70 tokens long. Both draw from the full distribution at temperature 1. Rounds are interleaved,
medians taken; seconds are wall time and the own time of the process, which other work disturbs
less. vLLM has its server's processes beside: one thread of arithmetic, and its scheduler, its front
and the client on what other cores there are; their time is counted too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import torch

from assay.config.sections import EngineSettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.torch import TorchEngine
from assay.engines.vllm.engine import open_vllm
from assay.maths.seeds import derive
from assay.policy.load import Policy
from assay.sandbox.kernel import cpu_seconds_of
from assay.types import Completion

Way = Callable[[list[GenerationRequest], int, int], list[int]]
"""Requests, most tokens and a seed to the lengths of the completions, their stop token included."""
STOPS = frozenset(range(20))
SHAPES = {
    "5.5M": {
        "hidden_size": 256,
        "intermediate_size": 640,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
    },
    "1.3B": {
        "hidden_size": 2048,
        "intermediate_size": 5504,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
    },
}


def make(shape: str, vocabulary: int, device: str) -> Policy:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    context = {
        "vocab_size": vocabulary,
        "max_position_embeddings": 2048,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    model = LlamaForCausalLM(LlamaConfig(**SHAPES[shape], **context)).to(device).eval()
    tokenizer = SimpleNamespace(save_pretrained=lambda folder: None)
    chat: Any = SimpleNamespace(stop_tokens=STOPS, text=lambda tokens: "", tokenizer=tokenizer)
    return Policy(model, chat, torch.device(device), 0)


def by_transformers(policy: Policy) -> Way:
    model = policy.model

    def write(requests: list[GenerationRequest], most: int, seed: int) -> list[int]:
        prompts = [request.prompt for request in requests]
        width = max(map(len, prompts))
        tokens = torch.tensor(
            [(0,) * (width - len(prompt)) + prompt for prompt in prompts], device=model.device
        )
        attention = torch.tensor(
            [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        )
        torch.manual_seed(seed)
        out = model.generate(
            input_ids=tokens, attention_mask=attention.to(model.device), do_sample=True, top_k=0,
            max_new_tokens=most, eos_token_id=sorted(STOPS), pad_token_id=0,
        )  # fmt: skip
        lengths = []
        for row in out[:, width:].tolist():
            ends = [place for place, token in enumerate(row) if token in STOPS]
            lengths.append(ends[0] + 1 if ends else len(row))
        return lengths

    return write


def by_assay(policy: Policy) -> Way:
    engine = TorchEngine(policy, EngineSettings(kv_cache_tokens=1 << 20))

    async def all_of_it(requests: list[GenerationRequest], most: int, seed: int) -> list[int]:
        own = [replace(request, seed=derive(seed, n)) for n, request in enumerate(requests)]
        written = await asyncio.gather(
            *(engine.generate(request, Sampling(most)) for request in own)
        )
        return [len(completion.tokens) for completion in written]

    return lambda requests, most, seed: asyncio.run(all_of_it(requests, most, seed))


def by_vllm(policy: Policy, python: str, folder: Path) -> tuple[Way, Callable[[], float]]:
    """Through a server with one thread of arithmetic, until this process ends; and what tells the
    CPU time of both.
    """
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0"
    settings = EngineSettings(
        name="vllm", kv_cache_tokens=1 << 17, python=python, arguments=("--skip-tokenizer-init",)
    )
    loop = asyncio.new_event_loop()
    opened = open_vllm(policy, settings, folder, 0)
    engine = loop.run_until_complete(opened.__aenter__())
    loop.run_until_complete(engine.load(policy, 0))

    def write(requests: list[GenerationRequest], most: int, seed: int) -> list[int]:
        async def all_of_it() -> list[Completion]:
            return await asyncio.gather(
                *(engine.generate(request, Sampling(most)) for request in requests)
            )

        return [len(completion.tokens) for completion in loop.run_until_complete(all_of_it())]

    return write, lambda: time.process_time() + sum(map(cpu_seconds_of, children_of(os.getpid())))


def children_of(pid: int) -> list[int]:
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [other for child in found for other in children_of(child)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", choices=SHAPES, default="5.5M")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=2048)
    parser.add_argument(
        "--prompt", type=int, nargs=2, default=(32, 96), help="shortest and longest"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--without", nargs="*", default=())
    parser.add_argument(
        "--vllm", help="interpreter of an environment with vLLM, to measure it as well"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    draw = random.Random(0)
    prompts = [
        tuple(draw.choices(range(20, given.vocabulary), k=draw.randint(*given.prompt)))
        for _ in range(given.prompts)
    ]
    requests = [GenerationRequest(prompt, 0) for prompt in prompts for _ in range(given.group)]
    exact, rough = (make(given.shape, given.vocabulary, given.device) for _ in range(2))
    rough.model.bfloat16()
    ways = {
        "transformers generate, float32": by_transformers(exact),
        "transformers generate, bfloat16": by_transformers(rough),
        "engines/torch, float32": by_assay(exact),
        "engines/torch, bfloat16": by_assay(rough),
    }
    clocks: dict[str, Callable[[], float]] = {}
    if given.vllm:
        ways["engines/vllm, float32"], clocks["engines/vllm, float32"] = by_vllm(
            exact, given.vllm, Path(mkdtemp())
        )
    ways = {
        name: way for name, way in ways.items() if not any(word in name for word in given.without)
    }
    rates: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
    for number in range(given.rounds):
        for name, way in ways.items():
            if not number:
                way(requests[:2], 4, 0)
            clock = clocks.get(name, time.process_time)
            wall, own = time.perf_counter(), clock()
            lengths = way(requests, given.tokens, number)
            wall, own = time.perf_counter() - wall, clock() - own
            rates[name].append((sum(lengths) / wall, sum(lengths) / own, statistics.mean(lengths)))
    first = next(iter(ways))
    base = [statistics.median(column) for column in zip(*rates[first], strict=True)]
    print(
        "| | tokens/s | ratio (range) | tokens per second of CPU time | ratio (range) | mean"
        " length |\n" + "| --- " * 6 + "|"
    )
    for name, rounds in rates.items():
        wall, own, mean = (statistics.median(column) for column in zip(*rounds, strict=True))
        pairs = list(zip(rounds, rates[first], strict=True))
        ratios = [[mine[part] / theirs[part] for mine, theirs in pairs] for part in (0, 1)]
        shown = [f"{min(one):.1f} to {max(one):.1f}" for one in ratios]
        print(
            f"| {name} | {wall:,.0f} | {wall / base[0]:.2f} ({shown[0]}) "
            f"| {own:,.0f} | {own / base[1]:.2f} ({shown[1]}) | {mean:.1f} |"
        )


if __name__ == "__main__":
    main()
