"""The lines of `bench.gpu_hour`: what a GPU must show, in the order of worth.

A word in braces stands for what only the machine knows: `{python}` and the interpreters `{vllm}`
and `{trl}`, the models `{qwen05}`, `{qwen15}`, `{smollm2}` and (dry) `{tiny}`, and `{figures}`, the
file to which the command writes its figures.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MODELS = {
    "qwen05": "Qwen/Qwen2.5-Coder-0.5B-Instruct",
    "qwen15": "Qwen/Qwen2.5-Coder-1.5B-Instruct",
    "smollm2": "smollm2",
}
"""By the word for it: the name of a model. Below `--models` its folder has the name's last part."""


@dataclass(frozen=True, slots=True)
class Line:
    """One command and what its figures are."""

    name: str
    command: str
    dry: str
    """The same with a tiny model and small numbers, for a CPU."""
    limit: int
    """Seconds, at most 600."""
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the word for an interpreter: packages that it must have."""
    reads: Literal["figures", "junit"] = "figures"
    """What the command writes to `{figures}`: the JSON of `bench.figures`, or pytest's XML."""
    environment: Mapping[str, str] = field(default_factory=dict)
    aims: Mapping[str, str] = field(default_factory=dict)
    """By the name of a figure: what it is compared with."""

    def words(self, places: Mapping[str, str], dry: bool) -> list[str]:
        """The command, with what stands for its words in braces."""
        return [word.format(**places) for word in shlex.split(self.dry if dry else self.command)]


VLLM = {"vllm": ("vllm",)}
TRL = {"trl": ("trl", "vllm")}
GENERATE = "{python} -m bench.generate --json {figures} --no-static"
ON_GPU = f"{GENERATE} --device cuda --dtype bfloat16 --prompts 32 --tokens 256 --rounds 3"
DRY = f"{GENERATE} --model {{tiny}} --dtype float32 --prompts 1 --tokens 8 --rounds 1"
BESIDE_VLLM = "--no-generate --vllm {vllm}"
TINY = (
    "--policy.model {tiny} --tasks.train drills:train --tasks.limit 8"
    " --evaluate.tasks drills:test --evaluate.samples 1 --evaluate.max_tokens 8"
    " --stages.grpo.rollout.tasks_per_step 2 --stages.grpo.rollout.group_size 2"
    " --rollout.max_tokens 8 --judge.slots 2"
)

LINES = (
    Line(
        "gpu-tests",
        "{python} -m pytest tests/gpu --junitxml {figures}",
        "{python} -m pytest tests/gpu --junitxml {figures}",
        limit=400, reads="junit",
    ),
    Line("decode-0.5B", ON_GPU + " --model {qwen05}", DRY, limit=240),
    Line(
        "decode-0.5B-vllm", f"{ON_GPU} --model {{qwen05}} {BESIDE_VLLM}", f"{DRY} {BESIDE_VLLM}",
        limit=420, needs=VLLM,
    ),
    Line("decode-1.5B", ON_GPU + " --model {qwen15}", DRY, limit=240),
    Line(
        "decode-1.5B-vllm", f"{ON_GPU} --model {{qwen15}} {BESIDE_VLLM}", f"{DRY} {BESIDE_VLLM}",
        limit=420, needs=VLLM,
    ),
    Line(
        "update-1.3B",
        "{python} -m bench.step --levers --json {figures}",
        "{python} -m bench.step --levers --dry --json {figures}",
        limit=480, environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        aims={"full, every lever: share of the card's flops": "aim 45 %; 34.7 % on an H100"},
    ),
    Line(
        "whole-step-trl",
        "{trl} -m bench.whole --model {qwen05} --device cuda --vllm --apart --prompts 16"
        " --tokens 200 --rounds 3 --json {figures}",
        "{trl} -m bench.whole --model {tiny} --apart --prompts 1 --tokens 8 --rounds 1"
        " --json {figures}",
        limit=600, needs=TRL,
    ),
    Line(
        "async-vllm",
        "{python} -m bench.lag --vllm {vllm} --cores --model {qwen05} --rounds 1 --steps 6"
        " --tokens 200 --json {figures}",
        "{python} -m bench.lag --vllm {vllm} --cores --rounds 1 --steps 1 --group 2 --tokens 8"
        " --json {figures}",
        limit=600, needs=VLLM,
    ),
    Line(
        "laptop",
        "{python} -m bench.recipe recipes/laptop.toml --policy.model {smollm2} --steps 6"
        " --limit 64 --json {figures}",
        "{python} -m bench.recipe recipes/laptop.toml --steps 2 --limit 2 --json {figures}"
        f" --stages.sft.dataset.batch_size 4 {TINY}",
        limit=240,
    ),
    Line(
        "qwen05",
        "{python} -m bench.recipe recipes/qwen05.toml --policy.model {qwen05} --steps 6"
        " --limit 64 --engine.kv_cache_tokens 400000 --json {figures}",
        "{python} -m bench.recipe recipes/qwen05.toml --steps 2 --limit 2 --json {figures}"
        f" {TINY}",
        limit=420,
    ),
    Line(
        "shell",
        "{python} -m bench.agent --model {qwen15} --json {figures}",
        "{python} -m bench.agent --model {tiny} --steps 1 --tasks 1 --group 2 --tokens 8"
        " --turns 2 --judge.slots 1 --json {figures}",
        limit=300,
    ),
    Line(
        "memory-plan",
        "{python} -m bench.plan --model {qwen05} --json {figures}",
        "{python} -m bench.plan --model {tiny} --json {figures} --rollout.tasks_per_step 2"
        " --rollout.group_size 2 --rollout.max_tokens 8",
        limit=420,
    ),
)  # fmt: skip
