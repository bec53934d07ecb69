"""rollouts/step_000012.parquet: all completions of a step with program, verdict and reward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from assay.files import by_step, remove_leftovers, replacing
from assay.trackers.base import Tracker
from assay.types import Execution, Rollout, Turn


class RolloutTracker(Tracker):
    """Writes one file for each step; a row is a turn, or a rollout that failed before any turn."""

    def __init__(self, folder: Path, *, start_step: int) -> None:
        """Delete files after `start_step`, and partial files that a killed trainer left."""
        self._folder = folder / "rollouts"
        self._folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self._folder)
        for step, file in by_step(self._folder, ".parquet").items():
            if step > start_step:
                file.unlink()

    def rollouts(self, step: int, groups: Sequence[Sequence[Rollout]]) -> None:
        """Write the step's file."""
        write_rollouts(self._folder / f"step_{step:06d}.parquet", step, groups)


def write_rollouts(file: Path, step: int, groups: Sequence[Sequence[Rollout]]) -> None:
    """Write groups of rollouts as one Parquet file, complete or not at all.

    Raises OSError when the disk is full or fails.
    """
    from pyarrow import Table, parquet

    table = Table.from_pylist(list(_rows(step, groups)), schema=_schema())
    with replacing(file) as partial:
        parquet.write_table(table, partial, compression="zstd")


def _schema() -> Any:
    import pyarrow as pa

    text, number, whole = pa.string(), pa.float64(), pa.int32()
    return pa.schema(
        {
            "step": whole,
            "task_id": text,
            "group": whole,  # the task's place in the step
            "index": whole,  # the rollout's place in its group
            "turn": whole,
            "prompt": text,  # the task's; null after the first turn
            "completion": text,
            "program": text,
            "verdict": text,
            "passed": whole,
            "total": whole,
            "detail": text,
            "output": text,
            "observation": text,  # what the environment answered
            "reward": number,
            "parts": pa.map_(text, number),
            "tokens": pa.list_(whole),
            "logprobs": pa.list_(pa.float32()),
            "ended": text,
            "version": whole,
            "cpu_seconds": number,
            "failure": text,
            "held_out": text,  # the verdict on the checks held out of the reward
        }
    )


def _rows(step: int, groups: Sequence[Sequence[Rollout]]) -> Iterator[dict[str, Any]]:
    for place, group in enumerate(groups):
        for index, rollout in enumerate(group):
            score = rollout.score
            common = {
                "step": step,
                "task_id": _clean(rollout.task.id),
                "group": place,
                "index": index,
                "reward": score.total if score else None,
                "parts": list(score.parts.items()) if score else None,
                "failure": _clean(rollout.failure),
                "held_out": rollout.held_out and str(rollout.held_out.verdict),
            }
            turns = [_turn(turn) for turn in rollout.turns] or [{}]
            for number, turn in enumerate(turns):
                prompt = _clean(rollout.task.prompt) if number == 0 else None
                yield common | {"turn": number, "prompt": prompt} | turn


def _turn(turn: Turn) -> dict[str, Any]:
    completion, execution = turn.completion, turn.execution
    return {
        "completion": _clean(completion.text),
        "program": _clean(turn.program),
        "observation": _clean(turn.observation),
        "tokens": completion.tokens,
        "logprobs": completion.logprobs,
        "ended": completion.ended,
        "version": completion.version,
    } | ({} if execution is None else _judged(execution))


def _judged(execution: Execution) -> dict[str, Any]:
    return {
        "verdict": str(execution.verdict),
        "passed": execution.passed,
        "total": execution.total,
        "detail": _clean(execution.detail),
        "output": _clean(execution.output),
        "cpu_seconds": execution.cpu_seconds,
    }


def _clean(text: str | None) -> str | None:
    """The text without lone surrogates, which a program may print and UTF-8 cannot encode."""
    return text if text is None else text.encode("utf-8", "replace").decode()
