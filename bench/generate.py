"""Tokens a second of the in-process engine and of transformers' generate, on a CPU or a GPU.

    python -m bench.generate [--size small large] [--vllm .venv-vllm/bin/python]
    python -m bench.generate --model FOLDER [FOLDER ...] [--tasks mbpp:train] [--prompts 4]

A random Llama of each size, prompts of 32 to 96 tokens with 8 completions each. Some token ids end
a completion: after 70 tokens on average (small) or 250 (large). With `--model`, pretrained models
in Hugging Face format: 8 prompts of a task set, as a run asks them (through the chat template, if
there is one), with 8 completions of up to 160 tokens each, which the model's own stop tokens end.
All sample from the full distribution at temperature 1, so mean lengths differ a little; with
`--fixed` nothing ends a completion before the limit. Rounds are interleaved, and medians count.
Ratios are to `generate` in the same data type. Rates are by wall time and by CPU time of the
process, which other work on the machine disturbs less. The CPU time of vLLM includes that of its
server. On a GPU vLLM computes in each data type, on the same card.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import torch

from assay.config.generation import EngineSettings
from assay.config.sections import PolicySettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.torch import TorchEngine
from assay.engines.vllm.engine import open_vllm
from assay.maths.seeds import derive
from assay.policy.chat import Chat
from assay.policy.load_model import Policy, load_policy
from assay.rollout.prompter import Prompter
from assay.sandbox.kernel import cpu_seconds_of
from assay.tasks import load
from assay.types import Completion
from bench.figures import Figure, add_json, write_figures
from bench.sizes import Size, add_arguments, sizes_of, table

Generate = Callable[[list[GenerationRequest], int, int], list[int]]
"""From requests, the token limit and a seed to the lengths of the completions, stop token
included."""
Round = tuple[float, float, float]
"""Tokens per second of wall time and of CPU time, and the mean length."""
GROUP = 8


def make(size: Size, dtype: str, arguments: argparse.Namespace) -> Policy:
    """A policy as in a run; that of a random model has no tokenizer."""
    never = frozenset({size.vocabulary})
    if size.folder:
        settings = {"model": size.folder, "dtype": dtype, "device": arguments.device}
        policy = load_policy(PolicySettings.model_validate(settings))
        stops = never if arguments.fixed else policy.chat.stop_tokens
        return replace(policy, chat=replace(policy.chat, stop_tokens=stops))
    stops = never if arguments.fixed else frozenset(range(size.stop_tokens))
    tokenizer = SimpleNamespace(save_pretrained=lambda folder: None)
    chat: Any = SimpleNamespace(stop_tokens=stops, text=lambda tokens: "", tokenizer=tokenizer)
    model = size.model(dtype).to(arguments.device).eval()
    return Policy(model, chat, torch.device(arguments.device), 0)


def by_transformers(policy: Policy, model: Any, **options: Any) -> Generate:
    """Through `generate` of a model with these options, all requests in one batch."""
    stops = sorted(policy.chat.stop_tokens)

    def generate(requests: list[GenerationRequest], limit: int, seed: int) -> list[int]:
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
            input_ids=tokens, attention_mask=attention.to(model.device), do_sample=True,
            temperature=1.0, top_k=0, top_p=1.0, repetition_penalty=1.0, max_new_tokens=limit,
            eos_token_id=stops, pad_token_id=0, **options,
        )  # fmt: skip
        lengths = []
        for row in out[:, width:].tolist():
            ends = [place for place, token in enumerate(row) if token in policy.chat.stop_tokens]
            lengths.append(ends[0] + 1 if ends else len(row))
        return lengths

    return generate


def by_assay(policy: Policy) -> Generate:
    """Through the in-process engine."""
    engine = TorchEngine(policy, EngineSettings(kv_cache_tokens=1 << 20))

    async def generate_all(requests: list[GenerationRequest], limit: int, seed: int) -> list[int]:
        seeded = [replace(request, seed=derive(seed, n)) for n, request in enumerate(requests)]
        calls = (engine.generate(request, Sampling(limit)) for request in seeded)
        return [len(completion.tokens) for completion in await asyncio.gather(*calls)]

    return lambda requests, limit, seed: asyncio.run(generate_all(requests, limit, seed))


def by_vllm(policy: Policy, python: str, folder: Path) -> tuple[Generate, Callable[[], float]]:
    """Through a server with one compute thread, or on the policy's GPU; and a clock of the CPU time
    of both processes.
    """
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0"
    words: tuple[str, ...] = ("--skip-tokenizer-init",)
    if policy.device.type == "cuda":
        words += ("--gpu-memory-utilization", "0.5")  # the policy has its part of the card
    settings = EngineSettings(name="vllm", kv_cache_tokens=1 << 17, python=python, arguments=words)
    loop = asyncio.new_event_loop()
    opened = open_vllm(policy, settings, folder, 0)
    engine = loop.run_until_complete(opened.__aenter__())
    loop.run_until_complete(engine.load(policy, 0))

    def generate(requests: list[GenerationRequest], limit: int, seed: int) -> list[int]:
        async def generate_all() -> list[Completion]:
            calls = (engine.generate(request, Sampling(limit)) for request in requests)
            return await asyncio.gather(*calls)

        return [len(completion.tokens) for completion in loop.run_until_complete(generate_all())]

    return (
        generate,
        lambda: time.process_time() + sum(map(cpu_seconds_of, children_of(os.getpid()))),
    )


def children_of(pid: int) -> list[int]:
    """All descendants."""
    children = [
        int(number) for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ]
    return children + [other for child in children for other in children_of(child)]


def requests_of(size: Size, chat: Chat, arguments: argparse.Namespace) -> list[GenerationRequest]:
    """Eight of each prompt: of tasks, or random tokens for a random model."""
    draw, number = random.Random(0), arguments.prompts or size.prompts
    if size.folder:
        tasks = draw.sample(load(arguments.tasks), number)
        prompts = [Prompter(chat).prompt(task) for task in tasks]
    else:
        prompts = [
            tuple(draw.choices(range(size.stop_tokens, size.vocabulary), k=draw.randint(32, 96)))
            for _ in range(number)
        ]
    return [GenerationRequest(prompt, 0) for prompt in prompts for _ in range(GROUP)]


def measure(size: Size, dtype: str, arguments: argparse.Namespace) -> dict[str, list[Round]]:
    """The rounds of each way to generate in one data type, interleaved. The first way is the one
    that the others are compared with.
    """
    policy = make(size, dtype, arguments)
    requests = requests_of(size, policy.chat, arguments)
    ways: dict[str, Generate] = {}
    if not arguments.no_generate:
        model = size.model(dtype).to(arguments.device).eval()
        ways[f"transformers generate, {dtype}"] = by_transformers(policy, model)
        if not arguments.no_static:
            way = by_transformers(policy, model, cache_implementation="static")
            ways[f"transformers generate, static cache, {dtype}"] = way
    ways[f"engines/torch, {dtype}"] = by_assay(policy)
    clocks: dict[str, Callable[[], float]] = {}
    if arguments.vllm and (dtype == "float32" or policy.device.type == "cuda"):
        name = f"engines/vllm, {dtype}"
        way, clock = by_vllm(policy, arguments.vllm, Path(mkdtemp()))
        ways[name], clocks[name] = way, clock
    rounds: dict[str, list[Round]] = {name: [] for name in ways}
    for number in range(arguments.rounds or size.rounds):
        for name, generate in ways.items():
            if not number:
                generate(requests[:2], 4, 0)
            clock = clocks.get(name, time.process_time)
            wall, cpu = time.perf_counter(), clock()
            lengths = generate(requests, arguments.tokens or size.max_tokens, number)
            wall, cpu = time.perf_counter() - wall, clock() - cpu
            total = sum(lengths)
            rounds[name].append((total / wall, total / cpu, statistics.mean(lengths)))
            line = f"{size.label}, round {number + 1}, {name}: {total / wall:,.0f} tokens/s"
            print(f"{line}, {total / cpu:,.0f} by CPU time", file=sys.stderr, flush=True)
    return rounds


def cell(rounds: list[Round], base: list[Round], part: int) -> str:
    """Median rate, and the median ratio to `base` with its range."""
    ratios = [mine[part] / theirs[part] for mine, theirs in zip(rounds, base, strict=True)]
    rate = statistics.median(result[part] for result in rounds)
    ratio = statistics.median(ratios)
    return f"{rate:,.0f} · **{ratio:.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"


def figures_of(label: str, results: dict[str, list[Round]]) -> list[Figure]:
    """The median rate by wall time of each way, and the median ratio to the first way."""
    figures, base = [], next(iter(results.values()))
    for way, rounds in results.items():
        rate = statistics.median(wall for wall, _, _ in rounds)
        figures.append(Figure(f"{label}: {way}", rate, "tokens/s"))
        if rounds is not base:
            ratios = [mine[0] / theirs[0] for mine, theirs in zip(rounds, base, strict=True)]
            name = f"{label}: {way} / {next(iter(results))}"
            figures.append(Figure(name, statistics.median(ratios), "times"))
    return figures


def main() -> None:
    """Measure, and print one table of all sizes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--prompts", type=int, help="prompts in a batch, instead of the size's")
    parser.add_argument("--tokens", type=int, help="token limit, instead of the size's")
    parser.add_argument("--fixed", action="store_true", help="every completion has that length")
    parser.add_argument(
        "--tasks", default="drills:train", help="task set of the prompts of pretrained models"
    )
    parser.add_argument(
        "--no-static", action="store_true", help="leave out `generate` with a static cache"
    )
    parser.add_argument(
        "--no-generate",
        action="store_true",
        help="leave out `generate`; ratios are to engines/torch",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--vllm", help="interpreter of an environment with vLLM, to measure it too")
    add_json(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows: dict[str, dict[str, str]] = {}
    columns: list[str] = []
    figures: list[Figure] = []
    for size in sizes_of(arguments):
        names = [
            f"{size.label}: tokens/s · ratio (range)",
            f"{size.label}: by CPU time",
            f"{size.label}: tokens of a completion",
        ]
        columns += names
        for dtype in arguments.dtype:
            rounds = measure(size, dtype, arguments)
            figures += figures_of(size.label, rounds)
            write_figures(arguments.json, figures)
            base = next(iter(rounds.values()))
            for way, results in rounds.items():
                mean = statistics.mean(result[2] for result in results)
                cells = [cell(results, base, 0), cell(results, base, 1), f"{mean:.0f}"]
                rows.setdefault(way, {}).update(zip(names, cells, strict=True))
    print(f"{arguments.threads} threads, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}")
    print(table(columns, rows))


if __name__ == "__main__":
    main()
