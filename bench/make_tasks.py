"""Bugs tried a minute by `assay make-tasks`: in one process for all tests, and in one for each.

    python -m bench.make_tasks FOLDER --bugs 8

The folder is a package with its tests. Both sides try the same bugs by turns, after one that is not
counted; what comes of each is compared.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from itertools import islice
from pathlib import Path

from assay.judge import Judge
from assay.make_tasks.bugs import Bug
from assay.make_tasks.maker import Maker
from assay.make_tasks.statement import IssueWording
from assay.types import RepositoryTests

ENDS = ("passed", "failed")


async def outcomes(maker: Maker, bug: Bug, together: bool) -> tuple[float, dict[str, str]]:
    """The seconds that a bug takes, and of each test whether it passes, fails or does neither."""
    maker._is_independent = together
    started = time.monotonic()
    tests = await maker._with_bug(bug.texts, maker._base.fail_to_pass)
    ends = {test.name: test.outcome if test.outcome in ENDS else "neither" for test in tests}
    return time.monotonic() - started, ends


async def main(folder: Path, count: int) -> None:
    """Print the bugs a minute of both sides, and how many outcomes differ."""
    base = RepositoryTests(str(folder.resolve()), (), (), seconds=120)
    async with Judge(slots=1, stop_early=False, allow_forgeable=True) as judge:
        maker = Maker(judge, folder.resolve().parent, base, 0, IssueWording())
        await maker.start(2)
        print(maker.report())
        seconds: dict[bool, list[float]] = {True: [], False: []}
        differing = tests = 0
        for number, candidate in enumerate(islice(maker._candidates(), count + 1)):
            bug, sides = await candidate(), {}
            assert isinstance(bug, Bug)
            for together in (number % 2 == 0, number % 2 == 1):
                duration, sides[together] = await outcomes(maker, bug, together)
                seconds[together] += [duration] if number else []
            differing += sum(sides[True].get(name) != how for name, how in sides[False].items())
            tests += len(sides[False])
            print(bug.operator, *(f"{side[-1]:.1f} s" for side in seconds.values() if side))
    for together, name in ((True, "one process"), (False, "a process for each test")):
        total = sum(seconds[together])
        print(f"{name}: {60 * count / total:.1f} bugs a minute")
    print(f"{differing} of {tests} outcomes differ; load {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bugs", type=int, default=8)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.folder, arguments.bugs))
