"""Early stopping."""

from typing import Annotated

from pydantic import Field

from assay.callbacks import StageHistory, callback
from assay.suggestions import is_like, suggest
from assay.tasks.rows import warn_once

STEPS_WITHOUT = 10
"""Steps after which a metric that has not come is warned of; half of a shorter stage."""


@callback
def stop_early(
    history: StageHistory, *, metric: str = "reward/pass_rate",
    patience: Annotated[int, Field(ge=1)] = 20, lowest_is_best: bool = False,
) -> str:  # fmt: skip
    """Ends the stage when none of a metric's last `patience` values is better than all before."""
    values, best = history.values(metric), min if lowest_is_best else max
    if not values:
        _warn_of_missing(history, metric)
    newest, past = values[-patience:], values[:-patience]
    if not past or best([*newest, best(past)]) != best(past):
        return ""
    return f"no new best {metric} in {patience} values; the best is {best(past):.4g}"


def _warn_of_missing(history: StageHistory, metric: str) -> None:
    """Warn once of a metric that no step has had. One of evaluations has until the first of them,
    or half of the stage.
    """
    names = {name for step in history.steps for name in step} - {"step"}
    half, count = history.total_steps / 2, len(history.steps)
    is_late = "evaluate/" in metric and not any("evaluate/" in name for name in names)
    if count < (half if is_late else min(half, STEPS_WITHOUT)):
        return
    alike = sorted(name for name in names if name.split("/")[-1] == metric.split("/")[-1])
    offer = suggest(metric, names) if is_like(metric, names) else "docs/metrics.md lists the names"
    offer = f"did you mean {alike[0]!r}?" if alike else offer
    warn_once(
        f"stage {history.stage!r}: stop_early waits for the metric {metric!r}, which no step has"
        f" had so far; {offer}"
    )
