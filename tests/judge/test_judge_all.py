"""judge_all, for scripts and for notebooks."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from assay.errors import DataError
from assay.judge import Job, judge_all
from assay.sync import run_sync
from assay.tasks import task_from_dict
from assay.types import Execution, Verdict
from tests.judge.jobs import RIGHT, add
from tests.judge.processes import descendants, gone


def test_judge_all_works_where_an_event_loop_runs_as_in_a_notebook() -> None:
    ended: list[int] = []
    before = descendants(os.getpid())

    async def cell() -> list[Execution]:
        return judge_all([add(RIGHT), add(None)], progress=lambda index, _: ended.append(index))

    executions = asyncio.run(cell())
    assert [execution.verdict for execution in executions] == [Verdict.PASS, Verdict.NO_CODE]
    assert sorted(ended) == [0, 1]
    assert gone([pid for pid in descendants(os.getpid()) if pid not in before])


def test_an_error_of_the_judge_reaches_a_notebook_as_it_is() -> None:
    async def cell() -> None:
        judge_all(["no job"])  # type: ignore[list-item]

    with pytest.raises(DataError, match="is no job"):
        asyncio.run(cell())


def test_an_interrupt_in_a_notebook_cancels_what_runs() -> None:
    cancelled = threading.Event()

    async def endless() -> None:
        try:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    async def cell() -> None:
        run_sync(endless())

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
    finally:
        signal.signal(signal.SIGINT, before)
        loop.close()
    assert cancelled.is_set()


def test_a_task_is_made_from_a_dict() -> None:
    task = task_from_dict({"tests": ["assert add(1, 2) == 3"], "entry_point": "add"})
    programs = ["def add(a, b): return a + b", "def add(a, b): return a"]
    executions = judge_all([Job(task, program) for program in programs])
    assert [str(execution.verdict) for execution in executions] == ["pass", "wrong"]
    with pytest.raises(DataError, match="task_from_dict"):
        task_from_dict({"tests": [], "entry_point": "add"})


def test_a_dict_with_an_unknown_field_gets_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    task_from_dict({"tests": ["assert f(1) == 1"], "entry_point": "f", "refernce": "x"})
    assert "unknown fields: 'refernce' (did you mean 'reference'?)" in caplog.text


def test_one_job_in_place_of_a_list_and_a_row_that_is_no_dict_are_each_one_clear_line() -> None:
    with pytest.raises(DataError, match=r"the jobs are one Job; write judge_all\(\[job\]\)"):
        judge_all(add(RIGHT))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="a task is a dict of fields, not 'x'"):
        task_from_dict("x")  # type: ignore[arg-type]
