"""The worker's own memory: what one test leaves must not fail the next."""

from __future__ import annotations

from typing import Any

import pytest

from assay.judge import Job, worker
from assay.judge.kinds.kind import KINDS, InWorker, Kind
from assay.types import Verdict
from tests.judge.jobs import judged_in_turn, programs_run, task

CYCLE = "x = [0] * {many}\nx.append(x)\nassert f(1) == 1"
"""A test that leaves a list that only the garbage collector frees; 8 bytes for each item."""
CYCLES = """
for number in range(40000):
    x = [[] for _ in range(50)]
    x.append('a' * 50000)
    x.append(x)
assert f(1) == 1
"""
"""A test that leaves 2,000 MB in small cycles: more than a worker may have."""
RIGHT = "def f(x): return x"


def test_what_a_test_leaves_is_gone_before_the_worker_takes_the_next_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    programs = programs_run(monkeypatch)
    check = CYCLE.format(many=70_000_000)  # 560 of the 1,024 MB of a worker
    jobs = [Job(task("f", f"{check}  # {number}", reference=RIGHT), RIGHT) for number in range(2)]
    assert [one.verdict for one in judged_in_turn(*jobs)] == [Verdict.PASS] * 2
    assert all(program.keeps_companion for program in programs)


@pytest.mark.long
def test_a_test_may_make_more_garbage_than_a_worker_has_memory() -> None:
    (execution,) = judged_in_turn(Job(task("f", CYCLES, reference=RIGHT), RIGHT))
    assert execution.verdict is Verdict.PASS, execution.detail


UNHASHABLE = """
class Kind(type):
    def __eq__(cls, other): return True
class Stack(metaclass=Kind):
    def size(self): return 1
"""
GONE = """
asked = []
def __getattr__(name):
    asked.append(name)
    if len(asked) > 1: raise KeyError(name)
"""
"""A module that has every name, but only when it is asked for the first time."""


@pytest.mark.parametrize("program", [UNHASHABLE, GONE], ids=["unhashable", "gone"])
def test_a_class_that_cannot_be_looked_up_is_the_programs_failure(program: str) -> None:
    (execution,) = judged_in_turn(Job(task("Stack", "assert Stack().size() == 1"), program))
    assert execution.verdict is Verdict.ERROR, execution


def test_a_worker_has_loaded_each_of_our_kinds_that_needs_it() -> None:
    ours = {name for name in map(module_of, KINDS.values()) if name.startswith("assay.")}
    assert ours == {*worker.RUN}


def module_of(kind: Kind[Any]) -> str:
    return kind.wire.__module__ if isinstance(kind, InWorker) else ""
