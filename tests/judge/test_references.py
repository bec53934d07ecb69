"""What the trial of a task's reference decides for its programs, and what a failed one decides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from assay.errors import SandboxError
from assay.judge import Job, Judge
from assay.judge.prepared_task import ProxyFeatures, features_to_try
from assay.judge.references import References
from assay.types import Execution, Task, Verdict
from tests.judge.jobs import programs_run, task
from tests.judge.opened import with_judge

SORTED = task("f", "x = [2, 1]\nf(x)\nassert x == [1, 2]", reference="def f(x): x.sort()")
PASS, WRONG = Execution(Verdict.PASS, total=1), Execution(Verdict.WRONG, total=1)


def references(ends: Callable[[ProxyFeatures], Execution]) -> References:
    """References of which each trial ends as `ends` says."""

    async def execute(_: Task, __: str, features: ProxyFeatures) -> Execution:
        return ends(features)

    async def no_answers(_: Task) -> Any:
        raise AssertionError("nobody asks for expected values")

    return References(execute, no_answers, cpu_seconds=1.0)


def test_the_first_features_with_which_the_reference_passes_are_the_tasks() -> None:
    tried: list[tuple[bool, bool]] = []

    def ends(features: ProxyFeatures) -> Execution:
        tried.append((features.objects, features.mutates))
        passes = Execution(Verdict.PASS, cpu_seconds=0.5, changes=("file a",), total=1)
        return passes if features.objects else WRONG

    async def found() -> list[ProxyFeatures | None]:
        all_references = references(ends)
        before = all_references.known_features(b"key")
        features = await all_references.features(b"key", SORTED)
        return [before, features, all_references.known_features(b"key")]

    features = ProxyFeatures(True, False, frozenset(["file a"]), time_factor=2.0)
    assert asyncio.run(found()) == [None, features, features]
    assert tried == [(False, False), (False, True), (True, False)]


def test_a_failed_or_cancelled_trial_decides_nothing_and_is_made_again() -> None:
    fails = [True]

    def ends(_: ProxyFeatures) -> Execution:
        if fails:
            raise SandboxError("the machine failed")
        return PASS

    async def run() -> None:
        all_references = references(ends)
        cancelled = asyncio.create_task(all_references.features(b"key", SORTED))
        await asyncio.sleep(0)  # the trial waits for its turn
        all_references.close()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert all_references.known_features(b"key") is None

        all_references = references(ends)
        failing = asyncio.create_task(all_references.features(b"key", SORTED))
        seen = set[ProxyFeatures | None]()
        while not failing.done():
            seen.add(all_references.known_features(b"key"))
            await asyncio.sleep(0)
        with pytest.raises(SandboxError):
            await failing
        assert seen == {None}
        fails.clear()
        assert await all_references.features(b"key", SORTED) == ProxyFeatures()

    asyncio.run(run())


def test_a_reference_that_never_passes_gives_no_features() -> None:
    async def run() -> None:
        all_references = references(lambda _: WRONG)
        assert await all_references.features(b"key", SORTED) is None
        assert all_references.known_features(b"key") is None

    asyncio.run(run())


def test_a_reference_that_the_machine_failed_is_tried_once_more() -> None:
    full = Execution(Verdict.ERROR, detail="OSError: [Errno 28] No space left", total=1)
    ends = iter([full] * len(features_to_try(SORTED)))

    async def run() -> None:
        all_references = references(lambda _: next(ends, PASS))
        assert await all_references.features(b"key", SORTED) == ProxyFeatures()
        assert all_references.why_it_fails_too(b"key", WRONG) is None

    asyncio.run(run())


def test_once_a_reference_is_tried_programs_start_with_the_features_of_its_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    programs = programs_run(monkeypatch)
    changes = list[list[bool]]()

    async def run(judge: Judge) -> list[Verdict]:
        verdicts = []
        for number in range(2):
            programs.clear()
            program = f"def f(x): x.sort()  # {number}"
            verdicts.append((await judge.run(Job(SORTED, program))).verdict)
            jobs = [json.loads(one.companion or b"") for one in programs]
            changes.append([job["mutates"] for job in jobs])
        return verdicts

    assert with_judge(run) == [Verdict.PASS] * 2
    # the program, its reference as the two ways to try, the program again; then only a program
    assert changes == [[False, False, True, True], [True]]


def test_a_task_with_all_its_values_stays_the_object_that_was_prepared() -> None:
    first, equal = task("f", "assert f(1) == 1"), task("f", "assert f(1) == 1")
    assert first is not equal

    async def ask() -> list[Task]:
        trials = references(lambda _: PASS)
        return [await trials.with_expected_values(b"key", each) for each in (first, equal)]

    assert asyncio.run(ask())[1] is equal
