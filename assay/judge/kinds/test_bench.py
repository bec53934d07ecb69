"""Test benches in Verilog. One that prints samples is run once with the reference, once with each
program, and what they print is compared here; any other is believed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile

from assay.judge.kinds.kind import AsksReference, EachCheck
from assay.judge.kinds.verilog_screen import designs, refusal, used
from assay.judge.kinds.workbench import Run, Workbench, decided
from assay.sandbox.program import Result
from assay.types import Execution, Task, TestBench, Verdict

SAMPLE = "@SAMPLE"
"""Starts what a bench prints of a sample: `@SAMPLE 0 1 | 1`, inputs and outputs in binary."""
PRINTED = re.compile(rf'\$display\s*+\(\s*+"{SAMPLE}[^"]*+"([^;]*+)')
UNKNOWN = frozenset("xXzZ")
CHEATS = {
    "empty": "", "an early $finish": "initial $finish;", "an early $stop": "initial $stop;",
    "force": "initial force tb.tb_match = 1;", "a final block": "final tb.stats1 = 0;",
    "printed pass markers": 'initial begin $display("Mismatches: 0 in 1 samples");'
    ' $display("Your Design Passed"); $display("Test Summary: 9/9 tests passed"); end',
}  # fmt: skip
"""What cheating programs have in place of a design's body."""


def marker(check: TestBench) -> str:
    """What stands for SAMPLE: a program that does not know the bench cannot print it."""
    return f"@{hashlib.sha256(check.bench.encode()).hexdigest()[:8]}"


def samples(check: TestBench, result: Result) -> list[str]:
    """The samples that a run printed, of which each byte is a character."""
    lines: list[bytes] = re.findall(marker(check).encode() + rb"([^\n]*)", result.stdout)
    return [line.decode("latin-1") for line in lines]


def pattern(passes: str) -> re.Pattern[str]:
    """What a check's `passes` stands for. A task file's own pattern could take hours to match."""
    parts = re.findall(r"\w+|[^\w\s]", passes)
    words = (r"(?<!\d)(\d++)" if part == "#" else re.escape(part) for part in parts)
    return re.compile(r"\s*+".join(words), re.IGNORECASE)


def believed(passes: str, result: Result) -> Execution:
    """What the bench says itself, in the last line that fits: where that names two numbers, so many
    of so many tests pass.
    """
    matches = list(pattern(passes).finditer(result.stdout.decode("latin-1")))
    if not matches:
        detail = "the test bench does not say that it passes"
        return Execution(Verdict.WRONG, total=1, detail=detail)
    numbers = [int(digits[:9]) for digits in matches[-1].groups()] or [1]
    passed, total = numbers[0], numbers[-1]
    if len(matches) == 1 and passed == total > 0:
        return Execution(Verdict.PASS, passed, total)
    detail = f"the test bench says {' '.join(matches[-1][0].split())!r}"
    detail += f", {len(matches)} times" * (len(matches) > 1)
    return Execution(Verdict.WRONG, passed * (passed < total), total, detail)


def compared(check: TestBench, result: Result) -> Execution:
    """Samples are right up to the first whose inputs differ: as many, with the same inputs, and
    every bit that the reference's outputs know.
    """
    got = samples(check, result)
    if check.expected is None:
        if got:
            return Execution(Verdict.PASS, 1, 1)
        return Execution(Verdict.WRONG, 1, 1, "its test bench prints no samples")
    expected = check.expected.split("\n")
    if got == expected:
        return Execution(Verdict.PASS, len(expected), len(expected))
    pairs = list(zip(expected, got, strict=False))
    same = list(takewhile(lambda pair: halves(pair[0])[0] == halves(pair[1])[0], pairs))
    wrong = [
        at for at, pair in enumerate(same) if not fits(*(halves(sample)[1] for sample in pair))
    ]
    faults = [f"{len(got)} samples, not {len(expected)}"] if len(got) != len(expected) else []
    if wrong:
        how = explained(check.bench, *same[wrong[0]])
        faults.append(f"sample {wrong[0] + 1} of {len(expected)}: {how}")
    elif len(same) < len(pairs):
        inputs, other = (halves(sample)[0].strip() for sample in pairs[len(same)])
        faults.append(f"sample {len(same) + 1} has other inputs: {other}, not {inputs}")
    verdict, total = Verdict.WRONG if faults else Verdict.PASS, max(len(expected), len(got))
    return Execution(verdict, len(same) - len(wrong), total, "; ".join(faults))


def halves(sample: str) -> tuple[str, str]:
    """A sample's inputs and outputs."""
    inputs, _, outputs = sample.partition("|")
    return inputs, outputs


def fits(outputs: str, answered: str) -> bool:
    """Whether every bit is right that the reference knows."""
    return outputs == answered or (
        len(outputs) == len(answered)
        and all(a == b or a in UNKNOWN for a, b in zip(outputs, answered, strict=True))
    )


def explained(bench: str, want: str, have: str) -> str:
    """How a sample is wrong: `out is 1'b0, not 1'b1, where a is 1'b1`."""
    printed = PRINTED.search(bench)
    names = (
        [name.strip(" \n\t)").removesuffix("_ref") for name in printed[1].split(",")[1:]]
        if printed
        else []
    )
    expected, got = want.replace("|", " ").split(), have.replace("|", " ").split()
    if not len(names) == len(expected) == len(got):
        return f"{have.strip()}, not {want.strip()}"
    inputs = len(want.partition("|")[0].split())
    rows = list(zip(names, expected, got, strict=True))
    wrong = [
        f"{name} is {_bits(b)}, not {_bits(a)}" for name, a, b in rows[inputs:] if not fits(a, b)
    ]
    where = [f"{name} is {_bits(a)}" for name, a, _ in rows[:inputs]]
    return f"{', '.join(wrong)}, where {', '.join(where)}" if where else ", ".join(wrong)


def _bits(value: str) -> str:
    """A value as Verilog has it; a long one in hexadecimal digits."""
    if len(value) > 16 and not set(value) - {"0", "1"}:
        return f"{len(value)}'h{int(value, 2):x}"
    return f"{len(value)}'b{value}"


async def simulated(
    workbench: Workbench, check: TestBench, program: str
) -> tuple[Execution, Run | None]:
    """The execution of a design on its bench, and what came of it if it was run."""
    program = used(program, check.design)
    if refused := refusal(program, check.bench, check.design, prints=not check.passes):
        return Execution(Verdict.FORBIDDEN, total=1, detail=refused), None
    bench = check.bench if check.passes else check.bench.replace(SAMPLE, marker(check))
    run = await workbench.run(program, beside=bench, files=check.data)
    if not check.passes:
        return await decided(run, partial(compared, check)), run
    execution = await decided(run, partial(believed, check.passes))
    return replace(execution, forgeable=execution.passed > 0), run


class TestBenches(EachCheck[TestBench], AsksReference[TestBench], judges=TestBench):
    """Each is a simulation of a design."""

    __test__ = False
    is_one_test = False

    async def judge_check(
        self, workbench: Workbench, check: TestBench, task: Task, program: str
    ) -> Execution:
        """The bench with the program as its design."""
        return (await simulated(workbench, check, program))[0]

    async def answers(
        self, workbench: Workbench, checks: Sequence[TestBench], task: Task
    ) -> tuple[Execution, list[str]]:
        """The samples of the reference, which are the same for all programs that are right."""
        texts: dict[int, str] = {}

        async def simulate(at: int) -> Execution:
            execution, run = await simulated(workbench, checks[at], task.reference or "")
            if run is not None and run.execution.verdict is Verdict.PASS:
                texts[at] = json.dumps("\n".join(samples(checks[at], run.result)))
            return execution

        if len(checks) == 1:
            execution = await simulate(0)
        else:
            execution = await workbench.in_turn(
                {at: partial(simulate, at) for at in range(len(checks))}
            )
        return execution, [texts[at] for at in sorted(texts)]

    def problem(self, check: TestBench, task: Task) -> str | None:
        """Why nothing can be compared."""
        if self.is_open(check) and task.reference is None and not check.passes:
            return "its test bench has nothing to compare with; add a reference"
        return None

    def is_open(self, check: TestBench) -> bool:
        """Whether it needs the reference's samples, or to be tried with the reference."""
        return check.expected is None

    def closed(self, check: TestBench, answer: str) -> TestBench:
        """The check with these samples."""
        return replace(check, expected=json.loads(answer))

    def defines(self, check: TestBench) -> Sequence[str]:
        """The design's module."""
        return [check.design]

    def cheats(self, check: TestBench, task: Task) -> dict[str, str]:
        """Designs without a right body."""
        return designs(CHEATS, check.design, task.reference)
