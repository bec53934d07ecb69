"""Tasks whose rate is near a target come more often."""

from typing import Annotated

from pydantic import Field

from assay.choices import Chance, TaskPool, choice, require_shares


@choice
def target_rate(
    pool: TaskPool,
    *,
    target: float = 0.5,
    least: float = 0.1,
    visits: Annotated[int, Field(ge=1)] = 5,
) -> Chance:
    """Take a task the more often the nearer its rate is to `target`, once it has so many `visits`:
    at the target in each of its turns, at the far end in a share `least` of them.
    """
    require_shares("target_rate", target=target, least=least)

    def chance(place: int, number: int) -> float:
        rate = pool.rates.by_task.get(pool.tasks[place].task.id)
        if rate is None or rate.visits < visits:
            return 1.0
        distance = abs(rate.rate - target) / max(target, 1 - target)
        return max(least, 1 - distance)

    return chance
