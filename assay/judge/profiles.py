"""What a task's tests need of the boundary beyond plain calls: found by trying the reference, least first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """Liberties of one task. Each is a way to lie, so that only references that need them buy them."""

    mutates: bool = False
    """Arguments that a call changes are changed in the caller too."""
    handles: bool = False
    """Objects that are no data cross as handles whose attributes, items and calls are requests."""


PLAIN = Profile()
LADDER = (Profile(mutates=True), Profile(handles=True), Profile(mutates=True, handles=True))
"""What to try, in this order, for a reference that does not pass plainly."""
