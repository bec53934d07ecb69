"""What to look at in the rollouts of a run: suspects of reward hacking, and tasks that changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from assay.trackers.rollouts import schema
from assay.types import Verdict
from assay.viewer.rollouts import LISTED, PLACES, Filter, RolloutFiles

if TYPE_CHECKING:
    from pyarrow import Table

MOST = 50
"""Rows of each list."""
SHARED_TASKS = 3
"""Tasks that one program answers before it is suspect."""
SHORT = 0.3
"""A program is suspect below this share of the median length of those that pass the same stage."""


def rows(
    table: Table, names: Sequence[str] = (*LISTED, "turns", "trusted")
) -> list[dict[str, Any]]:
    """The rows of an index as JSON."""
    return [
        {name: None if value != value else value for name, value in row.items()}
        for row in table.select([*names]).to_pylist()
    ]


def suspects(files: RolloutFiles) -> list[dict[str, Any]]:
    """Lists of rollouts that may be paid for what they do not do, each with why, its count and its
    first rows.
    """
    found = []
    for why, verdict in (
        ("pass the checks that pay, and fail one that is held out of the reward", "gap"),
        ("pass only because the program's word was taken for something", "trust"),
    ):
        table = files.select(Filter(verdict=verdict), "-reward")
        found.append({"why": why, "count": len(table), "rows": rows(table[:MOST])})
    paid = _paid_programs(files)
    table = files.index()
    for why, places in (
        (f"are the same program as for {SHARED_TASKS - 1} other tasks or more", _shared(paid)),
        (f"pass with less than {SHORT:.0%} of the usual length", _short(paid)),
    ):
        found.append({"why": why, "count": len(places), "rows": _at(table, places[:MOST])})
    return found


def _paid_programs(files: RolloutFiles) -> Table:
    """Place, task and program of the turns that pass, and are rewarded."""
    import pyarrow.compute as pc
    from pyarrow import dataset

    paths = [str(file) for file in files.files().values()]
    data = dataset.dataset(paths, schema=schema(), format="parquet")
    field = dataset.field
    paid = (field("verdict") == str(Verdict.PASS)) & (field("reward") > 0)
    table = data.to_table(
        [*PLACES, "task_id", "program"], filter=paid & field("program").is_valid()
    )
    return table.append_column("length", pc.utf8_length(table["program"])).combine_chunks()


def _shared(paid: Table) -> list[dict[str, int]]:
    """The first rollout of each program that answers several tasks, most tasks first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(paid):
        return []
    row = pa.array(range(len(paid)))
    table = paid.append_column("row", row)
    made = table.group_by("program").aggregate([("task_id", "count_distinct"), ("row", "min")])
    made = made.filter(pc.greater_equal(made["task_id_count_distinct"], SHARED_TASKS))
    made = made.sort_by([("task_id_count_distinct", "descending")])
    return list(paid.take(made["row_min"]).select([*PLACES]).to_pylist())


def _short(paid: Table) -> list[dict[str, int]]:
    """The rollouts with the shortest programs."""
    import pyarrow.compute as pc

    if not len(paid):
        return []
    limit = SHORT * pc.approximate_median(paid["length"]).as_py()
    short = paid.filter(pc.less(paid["length"], limit)).sort_by("length")
    return list(short.select([*PLACES]).to_pylist())


def _at(table: Table, places: Sequence[dict[str, int]]) -> list[dict[str, Any]]:
    """The rows of an index at some places."""
    import pyarrow as pa

    if not places:
        return []
    wanted = pa.Table.from_pylist(places, table.select([*PLACES]).schema)
    wanted = wanted.append_column("order", pa.array(range(len(wanted))))
    return rows(wanted.join(table, [*PLACES]).sort_by("order"))


def changes(first: Table, second: Table) -> list[dict[str, Any]]:
    """The tasks in both tables, with passed and judged rollouts of each; those that changed most
    stand first.
    """
    before, after = passes_by_task(first), passes_by_task(second)
    both = [
        {"task_id": task, "before": before[task], "after": after[task]}
        for task in before
        if task in after
    ]

    def difference(one: dict[str, Any]) -> float:
        (passed, of), (later, of_later) = one["before"], one["after"]
        return abs(float(later / of_later - passed / of))

    return sorted((one for one in both if difference(one)), key=difference, reverse=True)


def passes_by_task(table: Table) -> dict[str, tuple[int, int]]:
    """Passed and judged rollouts of each task."""
    import pyarrow as pa
    import pyarrow.compute as pc

    passed = pc.equal(pc.cast(table["verdict"], pa.string()), str(Verdict.PASS))
    judged = pa.table({"task": pc.cast(table["task_id"], pa.string()), "passed": passed})
    sums = judged.group_by("task").aggregate([("passed", "sum"), ("passed", "count")])
    return {
        row["task"]: (int(row["passed_sum"]), int(row["passed_count"]))
        for row in sums.to_pylist()
        if row["passed_count"]
    }
