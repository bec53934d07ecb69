"""Every task in turn."""

from assay.choices import Chance, TaskPool, choice


@choice
def uniform(pool: TaskPool) -> Chance:
    """Take every task once in an epoch, in an order that is shuffled for each epoch."""
    return lambda place, number: 1.0
