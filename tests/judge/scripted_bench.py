"""A workbench that runs nothing, and keeps what a kind would have run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from assay.judge.kinds.workbench import Run, Test, Workbench
from assay.languages import language_named
from assay.sandbox.box import Box
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.program import Pool
from assay.types import Execution, Verdict

PASS = Execution(Verdict.PASS, 1, 1)


class Asked(NamedTuple):
    source: str
    stdin: str
    more: Mapping[str, Any]


class ScriptedBench(Workbench):
    """Every program exits with status 0, prints nothing, and is right."""

    def __init__(self, language: str = "python") -> None:
        self.language = language_named(language)
        self.stop_early = True
        self.runs: list[Asked] = []
        self.once: list[Asked] = []

    async def run(self, source: str, stdin: str = "", **more: Any) -> Run:
        self.runs.append(Asked(source, stdin, more))
        return Run(PASS)

    async def run_once(self, source: str, stdin: str, pool: Pool) -> Run:
        self.once.append(Asked(source, stdin, {"pool": pool}))
        return Run(PASS)

    async def test(self, program: str) -> Execution:
        return PASS

    async def answers(self, program: str) -> tuple[Execution, list[str]]:
        return PASS, []

    async def compare(self, run: Run, expected: str, stdin: str = "") -> Execution:
        return PASS

    def box(self, spec: BoxSpec) -> AbstractAsyncContextManager[Box]:
        raise AssertionError(f"a box of {spec.tree}")

    async def in_turn(self, tests: Mapping[int, Test]) -> Execution:
        return [await test() for test in tests.values()][-1]
