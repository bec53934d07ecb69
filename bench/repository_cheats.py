"""What the judge says of every published cheat on tasks of repositories: the first task of each
package, then the second of each, and so on, until the minutes are over.

    assay make-tasks h11 parse toolz --output made
    python -m bench.repository_cheats made/tasks.jsonl [--minutes 35] [--slots 1]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain, zip_longest

from assay.judge import Job, Judge
from assay.judge.kinds.repository_cheats import cheats_of
from assay.tasks import load
from assay.types import RepositoryTests, Task, Verdict

EMPTY, RIGHT = "nothing", "the right change"


def by_turns(tasks: list[Task]) -> Iterator[Task]:
    """The first task of each package, the second of each, and so on."""
    groups: defaultdict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        groups[task.tags.get("package", "")].append(task)
    return filter(None, chain.from_iterable(zip_longest(*groups.values())))


async def verdicts(judge: Judge, task: Task) -> dict[str, Verdict]:
    """The verdict on each program: the right change, nothing, and each cheat that can be made."""
    (check,) = task.checks
    assert isinstance(check, RepositoryTests)
    reference = task.reference or ""
    programs = {RIGHT: reference, EMPTY: "", **cheats_of(check, reference)}
    jobs = [Job(task, program) for program in programs.values()]
    done = await judge.all(jobs)
    return {name: one.verdict for name, one in zip(programs, done, strict=True)}


def show(title: str, counts: dict[str, Counter[str]]) -> None:
    """A table of verdicts in Markdown."""
    names = ["tasks", *sorted({name for one in counts.values() for name in one} - {"tasks"})]
    print(f"\n| {title} | {' | '.join(names)} |\n|{'---|' * (1 + len(names))}")
    for row, one in counts.items():
        print(f"| {row} | {' | '.join(str(one[name]) for name in names)} |")


async def main() -> None:
    """Read the arguments, judge, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks")
    parser.add_argument("--minutes", type=float, default=35.0)
    parser.add_argument("--slots", type=int, default=1)
    given = parser.parse_args()
    packages: defaultdict[str, Counter[str]] = defaultdict(Counter)
    cheats: defaultdict[str, Counter[str]] = defaultdict(Counter)
    end = time.monotonic() + 60 * given.minutes
    async with Judge(slots=given.slots, allow_forgeable=True) as judge:
        for task in by_turns(load(given.tasks)):
            if time.monotonic() > end:
                break
            for name, verdict in (await verdicts(judge, task)).items():
                cheats[name].update(("tasks", str(verdict)))
                kind = {RIGHT: "right: ", EMPTY: "nothing: "}.get(name, "")
                packages[task.tags.get("package", "")][f"{kind}{verdict}"] += 1
                if verdict is Verdict.PASS and name != RIGHT:
                    print(f"{task.id}: {name} passes", flush=True)
            packages[task.tags.get("package", "")]["tasks"] += 1
    show("package", packages)
    show("program", cheats)


if __name__ == "__main__":
    asyncio.run(main())
