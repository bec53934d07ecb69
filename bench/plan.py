"""The peak memory that `assay plan` tells, beside what `assay train` then takes; and how long its
first answer takes, for models from 0.9M to 70B parameters.

    python -m bench.plan [--first] [--demo]
    python -m bench.plan --model FOLDER [FOLDER ...]

The demo, and a random Llama of 100M parameters (vocabulary 32,000), all weights and LoRA. Each row
is two processes: a plan, and a short training run of which the system tells the peak. `--model`
takes pretrained models instead; if there is a GPU, the peak is then that of what torch allocates
there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figures import Figure, add_json, write_figures
from bench.sizes import SIZES

RECIPE = Path(__file__).parent.parent / "recipes" / "demo.toml"
SHAPE = {"hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 12}
NOISE = """
from pathlib import Path

from assay.callbacks import StageHistory, callback
from assay.rewards import reward
from assay.types import Rollout


@reward
def noise(rollout: Rollout) -> float:
    \"\"\"Not the same for a whole group, or nothing would be learned.\"\"\"
    return float(sum(rollout.turns[-1].completion.tokens) % 2)


@callback
def gpu_peak(history: StageHistory) -> str:
    \"\"\"Writes down the most bytes that torch has allocated on the GPU so far.\"\"\"
    import torch

    if torch.cuda.is_available():
        file = history.folder.parent.with_suffix(".gpu_peak")
        file.write_text(str(torch.cuda.max_memory_allocated()))
    return ""
"""
TOML = """
plugins = ["noise.py"]
algorithm.name = "grpo"
rewards.noise = {{}}
callbacks.gpu_peak = {{}}
steps = 2
tasks.train = "drills:train"
rollout = {{ tasks_per_step = 8, group_size = 8, max_tokens = 128 }}
policy.model = "{model}"
{more}
"""
KINDS = (("all weights", ""), ("LoRA", "policy.lora = { rank = 16 }"))


SHAPES = {
    "0.9M": {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
             "num_key_value_heads": 4, "intermediate_size": 344},
    "135M": {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
             "num_key_value_heads": 3, "intermediate_size": 1536},
    "7B": {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 32, "intermediate_size": 11008},
    "70B": {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
            "num_key_value_heads": 8, "intermediate_size": 28672},
}  # fmt: skip


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


def compare(name: str, folder: Path, config: Path, settings: Sequence[str]) -> list[Figure]:
    """Print a row of the table: told, taken, and how far the first is from the second."""
    planned, _ = run("plan", str(config), "--json", *settings)
    estimate = max(stage["peak"] for stage in json.loads(planned)["stages"])
    _, peak = run("train", str(config), "--folder", str(folder), *settings)
    for file in folder.glob("*.gpu_peak"):
        peak = int(file.read_text())
    print(f"| {name} | {estimate >> 20} | {peak >> 20} | {estimate / peak - 1:+.0%} |", flush=True)
    return [
        Figure(f"{name}: told by assay plan", estimate / 2**20, "MiB"),
        Figure(f"{name}: taken", peak / 2**20, "MiB"),
    ]


def compare_models(
    models: Sequence[str], folder: Path, more: Sequence[str], file: Path | None
) -> None:
    """Two rows of each model. The figures go to a file."""
    (folder / "noise.py").write_text(NOISE)
    figures: list[Figure] = []
    for path, (kind, lora) in product(models, KINDS):
        name = f"{Path(path).name}, {kind}"
        config = folder / f"{kind.replace(' ', '-')}.toml"
        config.write_text(TOML.format(model=path, more=lora))
        figures += compare(name, folder / name, config, more)
        write_figures(file, figures)


def answers(folder: Path) -> Iterator[str]:
    """For each shape the seconds until an estimate, or a refusal, is printed: wall time, CPU time.
    No model is made: its configuration and tokenizer are all that is read.
    """
    model(folder / "model")
    config = json.loads((folder / "model/config.json").read_text())
    (folder / "noise.py").write_text(NOISE)
    (folder / "run.toml").write_text(TOML.format(model=folder / "model", more=KINDS[1][1]))
    for name, shape in SHAPES.items():
        (folder / "model/config.json").write_text(json.dumps(config | shape))
        start = time.monotonic()
        command = [sys.executable, "-m", "assay", "plan", str(folder / "run.toml")]
        child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert child.stderr
        line = next(line for line in child.stderr if re.search(b"estimated for|needs about", line))
        wall, times = time.monotonic() - start, Path(f"/proc/{child.pid}/stat").read_text().split()
        child.kill()
        child.wait()
        cpu = (int(times[13]) + int(times[14])) / os.sysconf("SC_CLK_TCK")
        yield f"{name}: {wall:.1f} s, CPU time {cpu:.1f} s: {line.decode().strip()[:60]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", action="store_true", help="only the first answers")
    parser.add_argument("--demo", action="store_true", help="only the demo")
    parser.add_argument("--model", nargs="+", metavar="FOLDER", help="pretrained models instead")
    add_json(parser)
    # Any other option is a setting of these runs, such as --evaluate.limit 2.
    arguments, more = parser.parse_known_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.first:
            print(*answers(folder), sep="\n")
            return
        print("| run | told, MiB | taken, MiB | difference |\n| --- | ---: | ---: | ---: |")
        if arguments.model:
            compare_models(arguments.model, folder, more, arguments.json)
            return
        compare("demo", folder / "demo", RECIPE, ["--stages.grpo.steps", "10", *more])
        if arguments.demo:
            return
        model(folder / "100M")
        compare_models([str(folder / "100M")], folder, (), arguments.json)


if __name__ == "__main__":
    main()
