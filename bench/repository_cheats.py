"""What the judge says of the right change, of none and of every published cheat on tasks of
repositories: the first task of each package, then the second of each, until the minutes are over.

    assay make-tasks h11 parse toolz --output made
    python -m bench.repository_cheats made/tasks.jsonl [--minutes 35] [--cheats 3] [--no-namespaces]
        [--changes tests/attacks/repository_changes.toml [--each 2]]

--cheats: of how many tasks of a package the cheats are tried; the right change and none always are.
--changes: a file of others that are tried, each on `--each` tasks of different packages.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from assay.judge import Job, Judge
from assay.judge.kinds.repository_cheats import CHEATS, cheats_of, read_cheats
from assay.sandbox import kernel, seccomp
from assay.sandbox.isolation import probe_isolation
from assay.tasks import load
from assay.types import Execution, RepositoryTests, Task, Verdict

EMPTY, RIGHT = "nothing", "the right change"


def by_turns(tasks: list[Task]) -> Iterator[Task]:
    """The first task of each package, the second of each, and so on."""
    groups: defaultdict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        groups[task.tags.get("package", "")].append(task)
    return filter(None, chain.from_iterable(zip_longest(*groups.values())))


def refuse_namespaces() -> None:
    """Have the kernel refuse them to this process and its children, as Docker's filter does."""
    kernel.forgo_privileges()
    refusal = seccomp._refuse([seccomp.NUMBERS["unshare"][seccomp.column()[1]]])
    seccomp.Filter([(seccomp.LOAD, 0, 0, seccomp.NR), *refusal, seccomp.PASS_ON]).load()


async def judged(
    judge: Judge, task: Task, cheats: list[dict[str, Any]], end: float
) -> AsyncIterator[tuple[str, Execution]]:
    """What came of the right change, of nothing and of each cheat that is begun before the end."""
    (check,) = task.checks
    assert isinstance(check, RepositoryTests)
    reference = task.reference or ""
    programs = {RIGHT: reference, EMPTY: "", **cheats_of(check, reference, cheats)}
    for name, program in programs.items():
        if time.monotonic() < end:
            (execution,) = await judge.all([Job(task, program)])
            yield name, execution


def show(title: str, counts: dict[str, Counter[str]]) -> None:
    """A table of verdicts in Markdown."""
    names = ["tasks", *sorted({name for row in counts.values() for name in row} - {"tasks"})]
    print(f"\n| {title} | {' | '.join(names)} |\n|{'---|' * (1 + len(names))}")
    for row, numbers in counts.items():
        print(f"| {row} | {' | '.join(str(numbers[name]) for name in names)} |")


async def main() -> None:
    """Read the arguments, judge, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks")
    parser.add_argument("--minutes", type=float, default=35.0)
    parser.add_argument("--cheats", type=int, default=1000)
    parser.add_argument("--no-namespaces", action="store_true")
    parser.add_argument("--changes", type=Path)
    parser.add_argument("--each", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.no_namespaces:
        refuse_namespaces()
    print(f"isolation: tier {probe_isolation().tier}, user {os.getuid()}", flush=True)
    packages: defaultdict[str, Counter[str]] = defaultdict(Counter)
    cheats: defaultdict[str, Counter[str]] = defaultdict(Counter)
    in_all = Counter[str]()
    end = time.monotonic() + 60 * arguments.minutes
    async with Judge(slots=1, allow_forgeable=True) as judge:
        tasks = [*by_turns(load(arguments.tasks))]
        apart = len({task.tags.get("package", "") for task in tasks})
        for at, task in enumerate(tasks):
            if time.monotonic() > end:
                break
            counts = packages[task.tags.get("package", "")]
            tried_here = CHEATS if counts["tasks"] < arguments.cheats else []
            if arguments.changes:
                changes = read_cheats(arguments.changes)
                tried_here = [
                    it for number, it in enumerate(changes)
                    if (at - number) % apart < arguments.each and at < apart
                ]  # fmt: skip
            async for name, execution in judged(judge, task, tried_here, end):
                verdict = execution.verdict
                cheats[name].update(("tasks", str(verdict)))
                kind = {RIGHT: "right: ", EMPTY: "nothing: "}.get(name, "")
                counts[f"{kind}{verdict}"] += 1
                if (verdict is Verdict.PASS) != (name == RIGHT):
                    print(f"{task.id}: {name}: {verdict}: {execution.detail}", flush=True)
                in_all[str(verdict)] += name not in (RIGHT, EMPTY)
            counts["tasks"] += 1
    print(f"cheats: {dict(in_all)}")
    show("package", packages)
    show("program", cheats)


if __name__ == "__main__":
    asyncio.run(main())
