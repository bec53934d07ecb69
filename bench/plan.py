"""The peak memory that `assay plan` tells, beside what `assay train` then takes.

    python -m bench.plan

The demo, and a random Llama of 100M parameters (vocabulary 32,000), all weights and LoRA. Each row
is two processes: a plan, and a short training run of which the system tells the peak.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.sizes import SIZES

RECIPE = Path(__file__).parent.parent / "recipes" / "demo.toml"
SHAPE = {"hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 12}
NOISE = """
from assay.rewards import reward
from assay.types import Rollout


@reward
def noise(rollout: Rollout) -> float:
    \"\"\"Not the same for a whole group, or nothing would be learned.\"\"\"
    return float(sum(rollout.turns[-1].completion.tokens) % 2)
"""
TOML = """
plugins = ["noise.py"]
algorithm.name = "grpo"
rewards.noise = {{}}
steps = 2
tasks.train = "drills:train"
rollout = {{ tasks_per_step = 8, group_size = 8, max_tokens = 128 }}
policy.model = "{model}"
{more}
"""


def model(folder: Path) -> None:
    """A random Llama of 100M parameters with the tokenizer of the drills."""
    from assay.config.sections import TinySettings
    from assay.policy.tiny import make_tiny
    from assay.tasks import load

    make_tiny(folder, load("drills:train"), TinySettings(), seed=0)
    large = SIZES["large"]
    replace(large, shape=large.shape | SHAPE).model().save_pretrained(folder)


def run(*words: str) -> tuple[str, int]:
    """What `assay` prints, and its peak of resident memory in bytes."""
    command = [sys.executable, "-m", "assay", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        printed = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {child.returncode}")
    return printed, usage.ru_maxrss << 10


def compare(name: str, folder: Path, config: Path, settings: Sequence[str]) -> str:
    """A row of the table: told, taken, and how far the first is from the second."""
    planned, _ = run("plan", str(config), "--json", *settings)
    told = max(stage["peak"] for stage in json.loads(planned)["stages"])
    _, taken = run("train", str(config), "--folder", str(folder), *settings)
    return f"| {name} | {told >> 20} | {taken >> 20} | {told / taken - 1:+.0%} |"


def main() -> None:
    print("| run | told, MiB | taken, MiB | difference |\n| --- | ---: | ---: | ---: |")
    with TemporaryDirectory() as name:
        folder = Path(name)
        print(compare("demo", folder / "demo", RECIPE, ["--stages.grpo.steps", "10"]), flush=True)
        model(folder / "model")
        (folder / "noise.py").write_text(NOISE)
        for label, more in (("all weights", ""), ("LoRA", "policy.lora = { rank = 16 }")):
            config = folder / "run.toml"
            config.write_text(TOML.format(model=folder / "model", more=more))
            print(compare(f"100M, {label}", folder / label, config, []), flush=True)


if __name__ == "__main__":
    main()
