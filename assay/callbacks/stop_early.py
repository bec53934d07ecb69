"""Early stopping."""

from typing import Annotated

from pydantic import Field

from assay.callbacks import StageHistory, callback


@callback
def stop_early(
    history: StageHistory, *, metric: str = "reward/pass_rate",
    patience: Annotated[int, Field(ge=1)] = 20, lowest_is_best: bool = False,
) -> str:  # fmt: skip
    """Ends the stage when none of a metric's last `patience` values is better than all before."""
    values, best = history.values(metric), min if lowest_is_best else max
    newest, past = values[-patience:], values[:-patience]
    if not past or best([*newest, best(past)]) != best(past):
        return ""
    return f"no new best {metric} in {patience} values; the best is {best(past):.4g}"
