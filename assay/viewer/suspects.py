"""What to look at in the rollouts of a run: suspects of reward hacking, and tasks by step."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.maths.rewards import MIN_STD
from assay.types import Verdict
from assay.viewer.rollout_index import LISTED, PLACES, RolloutFiles, RolloutFilter, row_keys

MOST = 50
"""Rows of each list."""
SHARED_TASKS = 3
"""Tasks that one program answers before it is suspect."""
SHORT = 0.3
"""A program is suspect below this share of the median length of those that pass the same stage."""
UNEARNED = 0.5
"""What fails is suspect from this share of the median reward of those that pass the same stage,
beside the share that its checks earn."""

ADVICE = (
    "The reward's checks are too few: read a program, and move checks like the one that fails into"
    " those that pay.",
    "Training does not pay for these unless judge.allow_forgeable is set: unset it, or state the"
    " tests as calls.",
    "A term of the reward pays without a right program: lower its weight, or give it only where"
    " the tests pass.",
    "The program may ignore its input: add checks with other inputs to these tasks, or drop those"
    " that `assay check` finds too easy.",
    "The program may be a table of the shown answers: hide those checks from the prompt, or add"
    " some that are not shown.",
)
"""What to do about each list, in their order."""


def rows(
    table: pa.Table, names: Sequence[str] = (*LISTED, "turns", "forgeable")
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
    table, paid = files.index(), _paid_programs(files)
    lists = {
        "pass the checks that pay, and fail one that is held out of the reward": files.select(
            RolloutFilter(verdict="gap"), "-reward"
        ),
        "pass, and could have forged it": files.select(
            RolloutFilter(verdict="forgeable"), "-reward"
        ),
        f"fail, and get {UNEARNED:.0%} of a pass's reward or more for something else": _unearned(
            table
        ),
        f"are the same program as for {SHARED_TASKS - 1} other tasks or more": _at(
            table, _shared(paid)
        ),
        f"pass with less than {SHORT:.0%} of the usual length": _at(table, _short(paid)),
    }
    return [
        {"why": why, "advice": advice, "count": len(some), "rows": rows(some[:MOST])}
        for (why, some), advice in zip(lists.items(), ADVICE, strict=True)
    ]


def _unearned(table: pa.Table) -> pa.Table:
    """The rows that fail and are paid for something else than checks, the highest reward first.
    Where nothing passes, the highest reward stands for a pass's, and one check earns all of it.
    """
    reward, passed, total = (table[name].to_numpy() for name in ("reward", "passed", "total"))
    judged = pc.cast(table["verdict"], pa.string())
    passes = pc.fill_null(pc.equal(judged, str(Verdict.PASS)), False).to_numpy()
    share = np.nan_to_num(passed / np.maximum(total, 1))
    usual = np.nanmedian(reward[passes]) if passes.any() else np.nanmax(reward, initial=0)
    other = reward - usual * (share if passes.any() else np.ceil(share))
    rows = table.filter(~passes & (other > 0) & (other >= UNEARNED * usual))
    return rows.sort_by([("reward", "descending"), ("step", "descending")])


def _paid_programs(files: RolloutFiles) -> pa.Table:
    """Place, task and program of the turns that pass, and are rewarded."""
    paid = (pc.field("verdict") == str(Verdict.PASS)) & (pc.field("reward") > 0)
    where = paid & pc.field("program").is_valid()
    table = files.turns([*PLACES, "task_id", "program"], where, None)
    return table.append_column("length", pc.utf8_length(table["program"]))


def _shared(paid: pa.Table) -> pa.Table:
    """The first rollout of each program that answers several tasks, most tasks first."""
    table = paid.append_column("row", pa.array(range(len(paid)), pa.int64()))
    counts = table.group_by("program").aggregate([("task_id", "count_distinct"), ("row", "min")])
    counts = counts.filter(pc.greater_equal(counts["task_id_count_distinct"], SHARED_TASKS))
    counts = counts.sort_by([("task_id_count_distinct", "descending")])
    return paid.take(counts["row_min"])


def _short(paid: pa.Table) -> pa.Table:
    """The rollouts with the shortest programs."""
    limit = SHORT * (pc.approximate_median(paid["length"]).as_py() or 0)
    return paid.filter(pc.less(paid["length"], limit)).sort_by("length")


def _at(table: pa.Table, places: pa.Table) -> pa.Table:
    """The rows of an index at some places, in the order of the places; the places may be of a later
    moment.
    """
    keys, at = row_keys(table), row_keys(places)
    return table.take(np.searchsorted(keys, at[np.isin(at, keys)]))


def passes_by_task(table: pa.Table) -> dict[str, tuple[int, int]]:
    """Passed and judged rollouts of each task."""
    return {task: (passed, judged) for task, passed, judged, _ in _passes(table, "task_id")}


def tasks(table: pa.Table) -> list[dict[str, Any]]:
    """Each task with the steps that had it: step, passed and judged rollouts, mean reward, and
    whether rewards of a group differed, so that it taught.
    """
    by_task: dict[str, list[list[Any]]] = {}
    taught = _taught(table)
    for task, step, *numbers in _passes(table, "task_id", "step"):
        by_task.setdefault(task, []).append([step, *numbers, (task, step) in taught])
    return [{"task_id": task, "steps": steps} for task, steps in by_task.items()]


def _taught(table: pa.Table) -> set[tuple[str, int]]:
    """The tasks and steps with a group whose rewards differ."""
    texts = {"task_id": pc.cast(table["task_id"], pa.string())}
    columns = {name: table[name] for name in ("step", "group", "reward")} | texts
    groups = pa.table(columns).group_by([*columns.keys() - {"reward"}])
    spread = groups.aggregate([("reward", "stddev")])
    spread = spread.filter(pc.greater_equal(spread["reward_stddev"], MIN_STD))
    return {(row["task_id"], row["step"]) for row in rows(spread, ("task_id", "step"))}


def _passes(table: pa.Table, *by: str) -> list[list[Any]]:
    """The columns `by`, passed and judged rollouts and their mean reward, in the order of `by`."""
    texts = {name: pc.cast(table[name], pa.string()) for name in ("task_id", "verdict")}
    columns = {name: table[name] for name in ("step", "reward")} | {"task_id": texts["task_id"]}
    columns["passed"] = pc.equal(texts["verdict"], str(Verdict.PASS))
    aggregates = [("passed", "sum"), ("passed", "count"), ("reward", "mean")]
    sums = pa.table(columns).group_by([*by]).aggregate(aggregates)
    sums = sums.filter(pc.greater(sums["passed_count"], 0))
    sums = sums.sort_by([(name, "ascending") for name in by])
    names = (*by, "passed_sum", "passed_count", "reward_mean")
    return [[*row.values()] for row in rows(sums, names)]
