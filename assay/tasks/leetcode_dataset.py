"""LeetCodeDataset: LeetCode's problems with checked solutions (arXiv:2504.14655)."""

from __future__ import annotations

from collections.abc import Iterator

from assay.tasks import task_set
from assay.tasks.cases import function_task
from assay.tasks.rows import LeftOutError, PublicSet, Row, usable_tasks
from assay.types import Check, Task

FILE, HUB = "leetcode_dataset/{}_rows.jsonl.gz", "newfacade/LeetCodeDataset"
LEETCODE = PublicSet("leetcode_dataset", FILE, HUB, splits=("train", "test"), part="{}")


@task_set
def leetcode_dataset(split: str = "train") -> Iterator[Task]:
    """LeetCodeDataset (arXiv:2504.14655): train (until June 2024) and test (the months after)."""
    return usable_tasks(LEETCODE.rows(split), task_of)


def task_of(row: Row) -> Task:
    """A row with `prompt` (imports and helpers), `completion`, `entry_point` and `test`.

    Raises LeftOutError for a row without a test, DataError for a malformed one.
    """
    prelude, test = row.text("prompt"), row.text("test", default="")
    if "def check(" not in test:
        raise LeftOutError("without tests")
    meta = row.table("meta").fields
    starter = str(row.fields.get("starter_code") or meta.get("lang_code") or "")
    problem = row.text("problem_description", default=str(meta.get("question_title") or ""))
    return function_task(
        f"LeetCode/{row.text('task_id')}",
        problem or row.text("query"),
        (Check(f"{test}\n\ncheck(candidate)"),),
        entry_point=row.text("entry_point"),
        starter=starter,
        prelude=prelude,
        setup=prelude,
        reference=f"{prelude}\n{row.text('completion')}",
    )
