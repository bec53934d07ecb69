"""Verilog designs judged a second, beside a serial loop of the same tools; and what a first and an
equal second program of each language cost.

    ASSAY_DATA=... python -m bench.languages --rounds 3

The designs are the references of VerilogEval 2 and up to two mutants of each. The loop compiles
each with the published test bench, simulates it, reads `Mismatches: 0` from what it prints, and
synthesises it, one after the other and without a sandbox. Both must give the same verdicts, for no
design tries to cheat.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from assay.errors import DataError
from assay.judge import Job, Judge
from assay.languages import language_named, languages
from assay.rewards.synthesis import YOSYS
from assay.sync import together
from assay.tasks import load
from assay.types import Task, Verdict
from bench.public_data import data_folder

SPLIT = "spec_to_rtl"
ROWS = "verilog_eval/v2/dataset_spec-to-rtl.jsonl.gz"
SLOW = ("Prob082_lfsr32", "Prob141_count_clock", "Prob144_conwaylife")
"""Seconds of simulation each, in which nothing but the simulator runs."""
SECONDS = 10
"""A simulation of the loop's has so many seconds."""
EDITS = (
    (r"(?<!&)&(?!&)", "|"), (r"(?<!\|)\|(?!\|)", "&"), (r"\^", "&"), (r"\+", "-"), (r"==", "!="),
    (r"~", ""), (r"\bposedge\b", "negedge"), (r"1'b0", "1'b1"), (r"(?<![<>=])<(?![<=])", ">"),
    (r"\?([^:;]*):([^;]*);", r"?\2:\1;"),
)  # fmt: skip
"""One place of a design, changed."""
FAULTY = ("Prob099", "Prob151", "Prob156")
"""Their references do not compile with Icarus Verilog 11."""


class Design(NamedTuple):
    """A program, and the files of the published flow."""

    task: Task
    source: str
    bench: str
    reference: str


def mutants(source: str, count: int) -> Iterator[str]:
    """Designs that differ from this one in one place."""
    lines, count_made = source.split("\n"), 0
    for pattern, text in EDITS:
        for number in range(source[: source.find(";")].count("\n") + 1, len(lines)):
            changed = re.sub(pattern, text, lines[number], count=1)
            if changed != lines[number] and "for" not in lines[number] and count_made < count:
                count_made += 1
                yield "\n".join([*lines[:number], changed, *lines[number + 1 :]])
                break


def designs(step: int, count: int) -> list[Design]:
    file = data_folder("verilog_eval") / ROWS
    rows = map(json.loads, gzip.decompress(file.read_bytes()).splitlines())
    result: list[Design] = []
    for task, row in list(zip(load(f"verilog_eval:{SPLIT}"), rows, strict=True))[::step]:
        if task.id in SLOW or task.id.startswith(FAULTY):
            continue
        reference = task.reference or ""
        sources = (reference, *mutants(reference, count))
        result += [Design(task, source, row["test"], row["ref"]) for source in sources]
    return result


Verdicts = list[tuple[bool, bool]]
"""Whether each design is right, and whether it can be made into hardware."""


def serial(every: Sequence[Design], synthesise: bool) -> tuple[float, Verdicts]:
    """Seconds, and the verdicts of the published rule and of yosys."""
    start, verdicts = time.perf_counter(), Verdicts()
    with tempfile.TemporaryDirectory() as folder:
        for design in every:
            for name, text in (
                ("d.sv", design.source),
                ("t.sv", design.bench),
                ("r.sv", design.reference),
            ):
                Path(folder, name).write_text(text)
            argv = ["iverilog", "-g2012", "-s", "tb", "-o", "p", "d.sv", "t.sv", "r.sv"]
            Path(folder, "p").unlink(missing_ok=True)
            run_made = subprocess.run(argv, cwd=folder, capture_output=True, check=False)
            printed = b""
            if run_made.returncode == 0:
                argv = ["timeout", str(SECONDS), "vvp", "-n", "p"]
                run = subprocess.run(argv, cwd=folder, capture_output=True, check=False)
                printed = run.stdout if run.returncode == 0 else b""
            right = re.search(rb"^Mismatches: 0 in [1-9]", printed, re.MULTILINE) is not None
            hardware = False
            if synthesise:
                Path(folder, YOSYS.source).write_text(design.source)
                run_made = subprocess.run(YOSYS.run, cwd=folder, capture_output=True, check=False)
                hardware = run_made.returncode == 0
            verdicts.append((right, hardware))
    return time.perf_counter() - start, verdicts


async def judged(
    every: Sequence[Design], slots: int | None, synthesise: bool
) -> tuple[float, Verdicts]:
    """Seconds without the judge's start, and its verdicts."""
    async with Judge(slots=slots) as judge:
        await judge.execute(language_named("verilog").hello, language="verilog")
        start = time.perf_counter()
        hardware = [judge.execute(design.source, language=YOSYS) for design in every if synthesise]
        both = judge.all([Job(design.task, design.source) for design in every]), together(hardware)
        ends, synthesised = await asyncio.gather(*both)
        took = time.perf_counter() - start
        passed = [result.execution.verdict is Verdict.PASS for result in synthesised] or [
            False
        ] * len(every)
        return took, list(zip([end.proven for end in ends], passed, strict=True))


async def costs(rounds: int) -> None:
    """Print milliseconds of wall time for a first program and for the same again."""
    print(f"{'language':12} {'first':>8} {'again':>8}   ms, median of {rounds}")
    for name in languages:
        language = language_named(name)
        try:
            language.versions()
        except DataError as error:
            print(f"{name:12} {error}")
            continue
        if not language.hello:
            continue
        first: list[float] = []
        again: list[float] = []
        async with Judge(slots=1) as judge:
            for number in range(rounds + 1):
                source = language.hello + "\n" * number
                for seconds in (first, again):
                    start = time.perf_counter()
                    run = await judge.execute(source, language=name)
                    seconds.append(1000 * (time.perf_counter() - start))
                    assert run.execution.output.strip() == "hello", (name, run)
        print(f"{name:12} {statistics.median(first[1:]):8.1f} {statistics.median(again[1:]):8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--step", type=int, default=2, help="take every so many-th problem")
    parser.add_argument("--mutants", type=int, default=2)
    parser.add_argument("--simulate-only", action="store_true", help="do not synthesise")
    options = parser.parse_args()
    how = not options.simulate_only
    every = designs(options.step, options.mutants)
    asyncio.run(judged(every, options.slots, how))  # expected values, which later runs find on disk
    ratios = []
    for number in range(options.rounds):
        ours, mine = asyncio.run(judged(every, options.slots, how))
        theirs, other = serial(every, how)
        ratios.append(theirs / ours)
        differ = [design.task.id for design, a, b in zip(every, mine, other, strict=True) if a != b]
        print(
            f"round {number + 1}: {len(every)} designs, {sum(right for right, _ in mine)} right,"
            f" {sum(right for _, right in mine)} made into hardware; assay"
            f" {len(every) / ours:.1f}/s, serial {len(every) / theirs:.1f}/s,"
            f" {ratios[-1]:.2f} times; {len(differ)} verdicts differ {differ or ''}"
        )
    print(f"{statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})")
    asyncio.run(costs(5))


if __name__ == "__main__":
    main()
