"""How many tasks of a set have tests in Python that are tables: the reference passes while nothing
but data crosses. Of the others, what the test does with an object; and of how many tasks the
reference's pass is forgeable.

    ASSAY_DATA=... python -m bench.tables humaneval mbpp:all classes

`classes` are ClassEval's rows.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter

from assay.judge import Job, Judge
from assay.judge.kinds.find import kind_of
from assay.judge.prepared_task import NO_FEATURES, PreparedTask
from assay.sandbox.limits import Limits
from assay.tasks import load
from assay.types import Task
from tests.judge.test_class_rows import class_tasks

SHOWN = 100


def tasks_of(name: str) -> list[Task]:
    """The tasks of a set that have tests in Python, and a reference."""
    tasks = class_tasks() if name == "classes" else load(name)
    return [
        task for task in tasks if task.reference and any(kind_of(it).code(it) for it in task.checks)
    ]


async def road_of(task: Task, judge: Judge) -> tuple[str, bool]:
    """Why a task's tests need objects, empty where they are a table; and whether the reference's
    pass is forgeable.
    """
    prepared, reference = PreparedTask(task, Limits(), stop_early=True), task.reference or ""
    features = await judge._references.features(prepared.digest, task)
    execution = await judge.run(Job(task, reference))
    if features is None:
        return f"the reference fails: {execution.detail}"[:SHOWN], False
    on_data = await judge._execute(task, reference, NO_FEATURES) if features.objects else None
    return on_data.detail[:SHOWN] if on_data else "", execution.forgeable


async def count(names: list[str]) -> None:
    """Print the counts of each set."""
    async with Judge() as judge:
        for name in names:
            tasks = tasks_of(name)
            roads = [await road_of(task, judge) for task in tasks]
            reasons = Counter(why for why, _ in roads)
            forgeable = sum(can_forge for _, can_forge in roads)
            print(f"{name}: {reasons.pop('', 0)} of {len(tasks)} are tables; {forgeable} forgeable")
            for reason, many in reasons.most_common():
                print(f"  {many}: {reason}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("sets", nargs="+")
    asyncio.run(count(parser.parse_args().sets))


if __name__ == "__main__":
    main()
