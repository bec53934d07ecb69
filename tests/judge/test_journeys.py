"""Journeys are tests: how many files of the trainer a completion passes on its way to its verdict
may only fall. A reader who follows one opens these files.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from assay.checks import Check, Exchange
from assay.extract import program
from assay.judge import Job, Judge
from assay.types import Execution, Task, Verdict
from tests.repositories import FIXES, OTHERS, appended, calc_task, write_tree
from tests.stays import files_of


class Journey(NamedTuple):
    files: int
    """Most files for a completion of a task that was judged before."""
    files_of_new_task: int
    """Most for the first completion of a task."""
    task: Callable[[Path], Task]
    reply: Callable[[Path], str]
    """A right reply."""


def fenced(code: str) -> Callable[[Path], str]:
    return lambda _: f"Here it is:\n```python\n{code}```\n"


FUNCTION = Task(
    "add", "def add(a, b):\n", (Check("assert add(1, 2) == 3"),), "add",
    reference="def add(a, b):\n    return a + b\n",
)  # fmt: skip
STDIN = Task("next", "Print the next number.", (Exchange("1\n", "2\n"), Exchange("3\n", "4\n")), "")
JOURNEYS = {
    "function": Journey(
        25, 29, lambda _: FUNCTION, fenced("def add(a, b):\n    total = a + b\n    return total\n")
    ),
    "stdin": Journey(28, 31, lambda _: STDIN, fenced("total = int(input())\nprint(total + 1)\n")),
    "repository": Journey(
        32, 37, lambda tree: calc_task(tree, fail_to_pass=FIXES[:1], pass_to_pass=OTHERS[:1]),
        lambda tree: f"```diff\n{appended(tree, 'total = 1', right=True)}```\n",
    ),
}  # fmt: skip


async def walks(task: Task, reply: str) -> list[tuple[set[str], Execution]]:
    """The files that the first completion of a task passes, and those of a later one."""
    async with Judge(slots=1) as judge:

        async def judged(reply: str) -> Execution:
            return await judge.run(Job(task, program(task, reply)))

        async def walk(act: Callable[[], Awaitable[Execution]]) -> tuple[set[str], Execution]:
            executions = list[Execution]()

            async def keep() -> None:
                executions.append(await act())

            return await files_of(keep), executions[0]

        first = await walk(lambda: judged(reply))
        return [first, await walk(lambda: judged(reply.replace("total", "whole")))]


@pytest.mark.parametrize("name", JOURNEYS)
def test_a_completion_passes_no_more_files_of_the_trainer_than_it_did(
    name: str, tmp_path: Path
) -> None:
    journey, tree = JOURNEYS[name], write_tree(tmp_path)
    task = journey.task(tree)
    (first, execution), (later, again) = asyncio.run(walks(task, journey.reply(tree)))
    assert execution.verdict is again.verdict is Verdict.PASS
    assert len(first) <= journey.files_of_new_task, sorted(first)
    assert len(later) <= journey.files, sorted(later)
