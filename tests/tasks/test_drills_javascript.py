"""Drills in JavaScript: the references pass in node, and demonstrations are partly wrong."""

from __future__ import annotations

import shutil
from functools import cache

import pytest

from assay.judge import Job
from assay.tasks import load
from assay.types import Task, Verdict
from tests.judge.opened import judge_all

needs_node = pytest.mark.skipif(not shutil.which("node"), reason="needs node")


@cache
def tasks(split: str) -> list[Task]:
    return load(f"drills_javascript:{split}")


def test_the_splits_have_their_sizes_and_share_no_prompt() -> None:
    assert (len(tasks("train")), len(tasks("test"))) == (827, 64)
    prompts = [{task.prompt for task in tasks(split)} for split in ("train", "test")]
    assert not prompts[0] & prompts[1]


def test_a_drill_is_asked_and_written_as_one_would() -> None:
    task = next(one for one in tasks("train") if "drop the zeros, count" in one.prompt)
    assert task.prompt == "// f(xs): drop the zeros, count the distinct ones\n"
    assert task.reference == "const f = (xs) => new Set(xs.filter((x) => x != 0)).size;\n"
    assert all(task.demonstrations)
    assert not tasks("test")[0].demonstrations


@pytest.mark.long
@needs_node
def test_every_operation_is_right_in_javascript() -> None:
    needed: dict[str, Task] = {}
    for task in tasks("train"):
        for stage in task.prompt.removeprefix("// f(").split(": ")[1].strip().split(", "):
            needed.setdefault(task.prompt[5:7] + stage, task)
    covering = list({task.id: task for task in needed.values()}.values())
    for run, task in zip(
        judge_all([Job(task, task.reference) for task in covering]), covering, strict=True
    ):
        assert run.proven, (task.prompt, run.detail)


@pytest.mark.long
@needs_node
def test_all_references_of_test_pass_and_a_quarter_of_the_demonstrations_fail() -> None:
    assert all(run.proven for run in judge_all([Job(one, one.reference) for one in tasks("test")]))
    shown = [Job(task, one) for task in tasks("train")[:60] for one in task.demonstrations]
    verdicts = [run.verdict for run in judge_all(shown)]
    assert set(verdicts) == {Verdict.PASS, Verdict.WRONG}
    assert 0.2 < verdicts.count(Verdict.WRONG) / len(verdicts) < 0.4
