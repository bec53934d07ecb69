"""One update (forward, backward, optimizer) compared with TRL's GRPOTrainer, on the same rollouts
of the same model.

    python -m pip install 'trl==1.16.0'                  # once; it is not a dependency
    python -m bench.step [--size small large]            # two CPU threads; PROMPT=150: prompts
    python -m bench.step --model FOLDER [--apart]        # a pretrained model; prompts of 120 tokens
    python -m bench.step --levers [--dry]                # one GPU, 1.3B parameters; --dry: on a CPU

First the gradients are compared, then tokens a second, then memory. TRL's trainer runs its own
`train()`; only its generation is replaced, by the rollouts. Each side is a process of its own,
TRL's with the defaults of OpenMP and glibc, ours with what `assay` sets. They take their updates in
turns, so both meet the same load, and medians count; `--apart` lets one side end before the other
starts, for models of which two do not fit into memory (all weights in float32 take 16 bytes a
parameter on each side, and activations). Both start from the same weights, in float32 unless the
row says bfloat16: then TRL computes under autocast, and ours is a policy with
`policy.dtype = "bfloat16"`. Memory is the peak of one step above model and optimizer, and that of
the whole process. A pretrained model is compared with TRL's defaults alone, with 8 completions of
66 tokens, of 160, and of 30 to 160 (66 on average).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from assay.tuning import tune

os.environ.update(tune() if {"assay", "--levers"} & set(sys.argv) else {})

import torch

from bench.figures import add_json
from bench.sides import alternate, peaks, ratio, status, turn
from bench.sizes import LENGTHS, Size, add_arguments, sizes_of, table
from bench.updates import Ours, Theirs, make, rollouts

Event = Callable[[], None]
OURS = "assay"
"""The side of this package; a process without it in its command keeps OpenMP's default."""
THEIRS: dict[str, dict[str, Any]] = {
    "TRL, its defaults in float32": {"bf16": False},
    "TRL, its defaults (bfloat16)": {},
    "TRL without checkpointing": {"bf16": False, "gradient_checkpointing": False},
    "TRL without checkpointing, whole step at once": {
        "bf16": False,
        "gradient_checkpointing": False,
        "whole": True,
    },
    "TRL without checkpointing, bfloat16": {"gradient_checkpointing": False},
}
"""TRL's settings; `whole` puts all rows of a step into one batch instead of eight."""
FLOAT32 = [name for name, changes in THEIRS.items() if "bf16" in changes and "whole" not in changes]
"""The settings that are measured at the large size, and whose memory is."""
DEFAULTS = ["TRL, its defaults in float32", "TRL, its defaults (bfloat16)"]
"""The settings that are measured with a pretrained model."""


@dataclass(frozen=True)
class Race:
    """Updates of both sides: of this package, and of TRL with one of its settings."""

    size: Size
    setting: str
    lora: bool
    prompts: int

    @property
    def dtype(self) -> str:
        """Both sides compute in bfloat16 unless the setting switches it off."""
        return "bfloat16" if THEIRS[self.setting].get("bf16", True) else "float32"

    def command(self, who: str, rounds: int) -> list[str]:
        """That of the process of one side."""
        words = [sys.executable, "-m", "bench.step", *self.size.arguments, "--side", who]
        words += ["--setting", self.setting, "--prompts", str(self.prompts)]
        return [*words, "--rounds", str(rounds), *(["--lora"] if self.lora else [])]

    def measure_gradients(self) -> None:
        """Print the largest difference of a gradient, as a share of the largest gradient."""
        samples = rollouts(self.prompts, self.size)
        model = make(self.size, self.lora)
        theirs = Theirs(model, samples, 1, bf16=False, max_grad_norm=0.0).gradients()
        del model
        gc.collect()  # TRL's optimizer, before ours is made
        gradients = Ours(make(self.size, self.lora), samples).gradients()
        assert gradients.keys() == theirs.keys()
        largest = max(float(slope.abs().max()) for slope in theirs.values())
        off = max(float((gradients[name] - slope).abs().max()) for name, slope in theirs.items())
        print(json.dumps(off / largest))

    def gradients(self) -> str:
        """`measure_gradients` in a process of its own, which ends with all its memory."""
        done = subprocess.run(self.command("gradients", 1), stdout=subprocess.PIPE, check=True)
        off = float(done.stdout.splitlines()[-1])
        assert off < 1e-4
        return f"{off:.0e}"

    def run(self, who: str, rounds: int, begin: Event, end: Event) -> None:
        """The updates of one side in this process, between calls of `begin` and `end`."""
        samples = rollouts(self.prompts, self.size)
        if who != OURS:
            model, changes = make(self.size, self.lora), THEIRS[self.setting]
            trainer = Theirs(model, samples, rounds, **changes)
            return trainer.train(on_step_begin=begin, on_step_end=end)
        ours = Ours(make(self.size, self.lora, self.dtype), samples)
        for _ in range(rounds):
            begin()
            ours.update()
            end()
        return None

    def take_turns(self, who: str, rounds: int) -> None:
        """The updates of one side, each when the other side has done its own."""
        step = contextlib.ExitStack()

        def begin() -> None:
            step.enter_context(turn())

        self.run(who, rounds, begin, step.close)

    def speeds(self, rounds: int, apart: bool) -> str:
        """How many times as long TRL's update takes, by wall and by CPU time; completion tokens a
        second and peak memory of both.
        """
        commands = [self.command(who, rounds + 1) for who in (OURS, "TRL")]
        steps = alternate(commands, rounds, apart)
        tokens = self.prompts * sum(self.size.lengths)
        rates = [
            tokens / statistics.median(step["wall"] for step in side)
            for side in zip(*steps, strict=True)
        ]
        speed = f"{rates[0]:,.0f} vs. {rates[1]:,.0f} tokens/s"
        return f"{ratio(steps, 'wall')}; by CPU time {ratio(steps, 'cpu')}; {speed}; {peaks(steps)}"

    def measure_memory(self, who: str) -> None:
        """Print the peaks of the third step of one side."""
        peak = Peak()
        self.run(who, 3, peak.begin, peak.end)
        print(json.dumps(peak.largest))

    def memory(self, who: str) -> str:
        """`measure_memory` in a process of its own, which returns freed memory to the system."""
        threshold = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
        done = subprocess.run(
            [*self.command(who, 3), "--memory"],
            env=os.environ | threshold, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        above, whole = json.loads(done.stdout.splitlines()[-1])
        return f"{above:,.0f} MiB, of the process {whole:,.0f}"


class Peak:
    """Memory of the last step in MiB: above what is held before it, and of the process."""

    def __init__(self) -> None:
        self.base = 0.0
        self.largest = (0.0, 0.0)

    def begin(self) -> None:
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        self.base = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")

    def end(self) -> None:
        self.largest = status("VmHWM") - self.base, status("VmHWM")


def lengths_of(size: Size) -> str:
    """The tokens of prompts and completions, for the head of a column."""
    shortest, longest = min(size.lengths), max(size.lengths)
    mean = f"{shortest} to {longest} ({statistics.mean(size.lengths):.0f} on average)"
    tokens = str(longest) if shortest == longest else mean
    return f"prompts of {size.prompt} tokens, 8 completions of {tokens}"


def side_by_side(arguments: argparse.Namespace) -> None:
    """Print gradients, tokens a second and memory, all sizes in one table."""
    rows: dict[str, dict[str, str]] = {}
    sizes = sizes_of(arguments, arguments.lengths)
    columns = [f"{size.label}, {lengths_of(size)}" for size in sizes]

    def note(name: str, column: str, measure: Callable[[], str]) -> None:
        if not any(word in name for word in arguments.without):
            rows.setdefault(name, {})[column] = cell = measure()
            print(f"{column} | {name}: {cell}", file=sys.stderr, flush=True)

    for size, column in zip(sizes, columns, strict=True):
        few = size.label.startswith("large") or arguments.few
        rounds = arguments.rounds or size.rounds
        settings = DEFAULTS if size.folder else FLOAT32 if few else list(THEIRS)
        for lora, prompts in itertools.product(
            (False, True), arguments.prompts or ((1,) if few or size.folder else (1, 4))
        ):
            row = f"{'LoRA' if lora else 'full'}, {prompts} x 8"
            races = [
                Race(size, setting, lora, prompts)
                for setting in settings
                if prompts == 1 or "whole" not in THEIRS[setting]
            ]
            note(f"{row}: largest difference of a gradient", column, races[0].gradients)
            for race in races:
                note(
                    f"{row}: {race.setting}", column, partial(race.speeds, rounds, arguments.apart)
                )
            for race in races:
                if race.setting in (DEFAULTS if size.folder else FLOAT32):
                    ours = f"{row}: peak memory, {OURS} in {race.dtype}"
                    if column not in rows.get(ours, {}):
                        note(ours, column, partial(race.memory, OURS))
                    note(f"{row}: peak memory, {race.setting}", column, partial(race.memory, "TRL"))
    print(
        f"Time of TRL's update, in times of ours (range); {torch.get_num_threads()} threads,"
        f" torch {torch.__version__}, load {os.getloadavg()[0]:.1f}"
    )
    print(table(columns, rows))


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument(
        "--lengths", choices=LENGTHS, nargs="+", default=list(LENGTHS),
        help="tokens of the completions that a pretrained model learns from",
    )  # fmt: skip
    parser.add_argument(
        "--prompts", type=int, nargs="+", help="prompts of an update, with 8 completions each"
    )
    parser.add_argument(
        "--without", nargs="*", default=(),
        help="words in the names of rows to leave out: LoRA, full, gradient, memory, bfloat16",
    )  # fmt: skip
    parser.add_argument("--apart", action="store_true", help="one side ends, then the other starts")
    parser.add_argument("--few", action="store_true", help="at the small size too, only float32")
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--setting", help=argparse.SUPPRESS)
    parser.add_argument("--lora", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--levers", action="store_true")
    parser.add_argument("--dry", action="store_true", help="with --levers: a tiny model on a CPU")
    parser.add_argument(
        "--peak", type=float,
        help="with --levers: the card's flops in bfloat16 [1/s]; measured with products if not",
    )  # fmt: skip
    add_json(parser)  # of --levers
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    if arguments.levers:
        from bench.levers import print_levers

        print_levers(arguments.dry, arguments.peak, arguments.json)
    elif arguments.side:
        (size,) = sizes_of(arguments, arguments.lengths)
        race = Race(size, arguments.setting, arguments.lora, arguments.prompts[0])
        if arguments.side == "gradients":
            race.measure_gradients()
        elif arguments.memory:
            race.measure_memory(arguments.side)
        else:
            race.take_turns(arguments.side, arguments.rounds)
    else:
        side_by_side(arguments)


if __name__ == "__main__":
    main()
