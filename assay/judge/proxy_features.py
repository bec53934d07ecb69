"""What a task needs of the judge beyond plain calls and the usual time: found by trying its
reference, least first.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from assay.sandbox.limits import LONGEST

SLACK = 4.0
"""A program has so many times the reference's own CPU time on this machine, where that is more than
the limit."""


@dataclass(frozen=True, slots=True)
class ProxyFeatures:
    """Liberties of one task. Each is a way to lie, so that only references that need them buy
    them.
    """

    mutates: bool = False
    """Arguments that a call changes are changed in the caller too."""
    handles: bool = False
    """Objects that are no data cross as handles whose attributes, items and calls are requests."""
    callbacks: bool = False
    """Functions that a test passes can be called by the program; each call is a request the other
    way."""
    time_factor: float = 1.0
    """How many times the usual time limits it has."""


PLAIN = ProxyFeatures()
FEATURES_TO_TRY = tuple(
    ProxyFeatures(mutates, handles, callbacks)
    for callbacks, handles, mutates in product((False, True), repeat=3)
)
"""What to try, in this order, until the reference passes."""


def time_factor(cpu_seconds: float, limit: float) -> float:
    """How many times `limit` a task has whose reference takes `cpu_seconds`: 1 to LONGEST."""
    return min(float(LONGEST), max(1.0, SLACK * cpu_seconds / limit))
