"""Verilog drills: small generated modules, with wires alone or with a register; no download needed.

A prompt names two to four steps. `train` and `test` never share a pair of a first and a second
step, though each step occurs in both. Demonstrations of train are partly wrong.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations, product
from pathlib import Path

from assay.tasks import require_split, task_set
from assay.tasks.drills.operations import Operation, stage
from assay.types import Task, TestBench

SEED = 2026
HELD_OUT_SHARE, WRONG_SHARE, DEMONSTRATIONS = 0.2, 0.5, 4
WIRES_HEAD = "module top(input [3:0] a, b, output [3:0] y);\n"
CLOCKED_HEAD = "module top(input clk, rst, en, input [3:0] a, output [3:0] y);\n"
FIRST = (
    stage("a plus b", "a + b", "a - b"),
    stage("a minus b", "a - b", "b - a"),
    stage("a and b", "a & b", "a | b"),
    stage("a or b", "a | b", "a ^ b"),
    stage("a xor b", "a ^ b", "a & b"),
    stage("the larger of a and b", "a > b ? a : b", "a < b ? a : b"),
    stage("the smaller of a and b", "a < b ? a : b", "a > b ? a : b"),
)
UPDATES = (
    stage("count up", "q + 4'd1", "q - 4'd1"),
    stage("count down", "q - 4'd1", "q + 4'd1"),
    stage("count up by 3", "q + 4'd3", "q + 4'd1"),
    stage("add a", "q + a", "q - a"),
    stage("xor with a", "q ^ a", "q | a"),
    stage("load a", "a", "q + a"),
    stage("shift a[0] in", "{q[2:0], a[0]}", "{a[0], q[3:1]}"),
)
CHANGES = (
    stage("invert", "~{0}", "-{0}"),
    stage("negate", "-{0}", "~{0}"),
    stage("shift left", "{0} << 1", "{0} >> 1"),
    stage("shift right", "{0} >> 1", "{0} << 1"),
    stage("add 1", "{0} + 4'd1", "{0} - 4'd1"),
    stage("subtract 3", "{0} - 4'd3", "4'd3 - {0}"),
    stage("keep the low 2 bits", "{0} & 4'd3", "{0} & 4'd2"),
    stage("flip the top bit", "{0} ^ 4'd8", "{0} | 4'd8"),
    stage("set the low bit", "{0} | 4'd1", "{0} & 4'd1"),
)
WIRES_BENCH = Path(__file__).with_name("verilog_drills_wires.v").read_text()
CLOCKED_BENCH = Path(__file__).with_name("verilog_drills_clocked.v").read_text()


@dataclass(frozen=True, slots=True)
class Module:
    """A first step, then changes of what it gives. With a register, the first step updates it."""

    first: Operation
    changes: tuple[Operation, ...] = ()
    reset: int | None = None
    """The register's value after a reset; None for wires alone."""
    enabled: bool = False
    """Whether the register is only updated while `en` is 1."""


@task_set
def verilog_drills(split: str = "train") -> Iterator[Task]:
    """Generated Verilog modules of wires or one register, no download needed. Splits: train, test
    (new pairs of steps).
    """
    require_split("verilog_drills", split, ("train", "test"))
    for n, module in enumerate(_splits()[split]):
        draw = random.Random(SEED + n)
        head = WIRES_HEAD if module.reset is None else CLOCKED_HEAD
        stub = f"// {prompt(module)}\n{head}"
        yield Task(
            id=f"verilog_drills/{split}/{n}",
            prompt=stub,
            checks=(TestBench(WIRES_BENCH if module.reset is None else CLOCKED_BENCH, "top"),),
            entry_point="",
            language="verilog",
            stub=stub,
            reference=stub + short(module),
            demonstrations=tuple(_demonstration(module, draw) for _ in range(DEMONSTRATIONS))
            if split == "train"
            else (),
            stop=("\n// ",),
        )


@cache
def _splits() -> dict[str, list[Module]]:
    draw = random.Random(SEED)
    train, test = [Module(first) for first in FIRST], list[Module]()
    registers = list(product((0, 5), (False, True)))
    train += [Module(first, (), *register) for first, register in product(UPDATES, registers)]
    for firsts, kinds in ((FIRST, [(None, False)]), (UPDATES, registers)):
        pairs = list(product(firsts, CHANGES))
        held_out = draw.sample(pairs, round(HELD_OUT_SHARE * len(pairs)))
        for (first, change), kind in product(pairs, kinds):
            module = Module(first, (change,), *kind)
            (test if (first, change) in held_out else train).append(module)
    longer = [Module(first, pair) for first, pair in product(FIRST, permutations(CHANGES, 2))]
    tested = {(module.first, module.changes[:1]) for module in test}
    for module in draw.sample(longer, len(longer) // 3):
        (test if (module.first, module.changes[:1]) in tested else train).append(module)
    for modules in (train, test):
        draw.shuffle(modules)
    return {"train": train, "test": test}


def prompt(module: Module) -> str:
    """`a plus b, invert`, or `reset to 5, count up while en, invert`."""
    changes = [change.phrase for change in module.changes]
    if module.reset is None:
        return ", ".join([module.first.phrase, *changes])
    update = f"{module.first.phrase}{' while en' if module.enabled else ''}"
    return ", ".join([f"reset to {module.reset}", update, *changes])


def near_misses(module: Module) -> Iterator[Module]:
    """The module with one thing wrong."""
    if module.first.slip:
        yield replace(module, first=module.first.slip)
    for n, change in enumerate(module.changes):
        if change.slip:
            changes = (*module.changes[:n], change.slip, *module.changes[n + 1 :])
            yield replace(module, changes=changes)
    if module.reset is not None:
        yield replace(module, reset=5 - module.reset)
        yield replace(module, enabled=not module.enabled)


def short(module: Module) -> str:
    """The body in as few lines as it needs: the reference's style."""
    value = module.first.code if module.reset is None else "q"
    for change in module.changes:
        value = change.code.format(value if value.isidentifier() else f"({value})")
    return _body(module, [], value)


def steps(module: Module) -> str:
    """The body with a wire and a comment for each step."""
    lines, last = list[str](), "q"
    if module.reset is None:
        last = "first"
        lines = [f"// {module.first.phrase}", f"wire [3:0] first = {module.first.code};"]
    for n, change in enumerate(module.changes, start=1):
        lines += [f"// {change.phrase}", f"wire [3:0] step{n} = {change.code.format(last)};"]
        last = f"step{n}"
    return _body(module, lines, last)


def _body(module: Module, lines: list[str], value: str) -> str:
    register = list[str]()
    if module.reset is not None:
        register = [
            "reg [3:0] q;",
            "always @(posedge clk)",
            f"  if (rst) q <= 4'd{module.reset};",
            f"  else {'if (en) ' if module.enabled else ''}q <= {module.first.code};",
        ]
    every = [*register, *lines, f"assign y = {value};"]
    return "".join(f"  {line}\n" for line in every) + "endmodule\n"


def _demonstration(module: Module, draw: random.Random) -> str:
    answer = draw.choice(list(near_misses(module))) if draw.random() < WRONG_SHARE else module
    return draw.choice((short, steps))(answer)
