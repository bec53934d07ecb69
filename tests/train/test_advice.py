"""The end of a run: a later stage that is worse is named, and the better checkpoint offered."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from assay.maths.estimates import Interval
from assay.train.stages import _advice

FOLDERS: Any = {
    name: SimpleNamespace(latest=lambda name=name: Path(f"runs/demo/{name}/checkpoints/step_9"))
    for name in ("sft", "grpo")
}


def measured(name: str, rate: float, low: float, high: float, tasks: str = "drills:test") -> Any:
    return SimpleNamespace(
        name=name, pass_at={1: rate}, interval=Interval(low, high), tasks_spec=tasks,
        temperature=1.0, dropped=0, lost="0",
    )  # fmt: skip


def test_a_last_stage_that_is_worse_is_named_with_both_rates_and_the_better_checkpoint() -> None:
    stages = [measured("sft", 0.55, 0.5, 0.6), measured("grpo", 0.4, 0.35, 0.45)]
    assert _advice(stages, FOLDERS) == (
        "grpo is worse than sft: pass@1 40.0% [35.0%, 45.0%], before 55.0% [50.0%, 60.0%]; use"
        " runs/demo/sft/checkpoints/step_9"
    )


def test_overlapping_intervals_are_said_to_overlap() -> None:
    stages = [measured("sft", 0.55, 0.45, 0.6), measured("grpo", 0.5, 0.4, 0.6)]
    advice = _advice(stages, FOLDERS)
    assert "looks worse than sft" in advice
    assert "but the intervals overlap; use" in advice


def test_the_untrained_model_may_be_the_best() -> None:
    stages = [measured("base", 0.55, 0.5, 0.6), measured("sft", 0.4, 0.35, 0.45)]
    assert _advice(stages, FOLDERS).endswith("keep the model you started from")


def test_the_best_last_stage_and_other_task_sets_give_no_advice() -> None:
    stages = [measured("sft", 0.5, 0.4, 0.6), measured("grpo", 0.6, 0.5, 0.7)]
    assert _advice(stages, FOLDERS) == ""
    assert _advice([measured("sft", 0.9, 0.8, 1.0, "humaneval"), stages[1]], FOLDERS) == ""
