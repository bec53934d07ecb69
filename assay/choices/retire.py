"""Tasks that are nearly always or never solved rest."""

from typing import Annotated

from pydantic import Field

from assay.choices import Chance, TaskPool, choice, require_shares
from assay.errors import SettingsError


@choice
def retire(
    pool: TaskPool, *, low: float = 0.05, high: float = 0.95,
    visits: Annotated[int, Field(ge=1)] = 5, returns: float = 0.1,
) -> Chance:  # fmt: skip
    """Let a task rest whose rate is below `low` or above `high` after so many `visits`. A resting
    task is still taken in a share `returns` of its turns, and works again once its rate is back.
    """
    require_shares("retire", low=low, high=high, returns=returns)
    if low > high:
        raise SettingsError(f"`tasks.choice.low` = {low:g} is above `high` = {high:g}; swap them")

    def chance(place: int, number: int) -> float:
        rate = pool.rates.by_task.get(pool.tasks[place].task.id)
        if rate is None or rate.visits < visits or low <= rate.rate <= high:
            return 1.0
        return returns

    return chance
