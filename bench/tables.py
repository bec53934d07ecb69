"""How many tasks of a set have tests that are tables, and why the others' tests run as programs.

ASSAY_DATA=... python -m bench.tables humaneval mbpp:all
"""

from __future__ import annotations

import argparse
from collections import Counter

from assay.judge.tables import NoTableError, tables_of
from assay.tasks import load
from assay.types import Check, Task

SHOWN = 100


def why_not(task: Task) -> str:
    """Why a task's tests are no tables; empty where they are."""
    try:
        tables_of(task)
    except NoTableError as error:
        return str(error).partition("\n")[0][:SHOWN]
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("sets", nargs="+")
    for name in parser.parse_args().sets:
        tasks = [task for task in load(name) if any(isinstance(one, Check) for one in task.checks)]
        reasons = Counter(map(why_not, tasks))
        print(f"{name}: {reasons.pop('', 0)} of {len(tasks)} tasks with asserts are tables")
        for reason, count in reasons.most_common():
            print(f"  {count}: {reason}")


if __name__ == "__main__":
    main()
