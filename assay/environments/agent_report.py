"""What an agent reports that judges its rollout itself: the last line that it prints."""

import json
from dataclasses import dataclass
from math import isfinite

FORM = 'as its last line it must print {"reward": 0.5}, {"lost": "why"} or {"broken": "why"}'
"""What an agent must do whose report cannot be read."""


@dataclass(frozen=True, slots=True)
class AgentReport:
    """One of three, or nothing where the agent came to no report."""

    reward: float | None = None
    """What the rollout is worth."""
    lost: str = ""
    """Why the machine lost the rollout."""
    broken: str = ""
    """What its user must repair."""


def read_report(text: str) -> AgentReport:
    """The report in what an agent printed that ended well; `broken` where there is none."""
    lines = text.strip().splitlines()
    try:
        report = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        report = None
    match report:
        case {"reward": int() | float() as reward} if type(reward) is not bool and isfinite(reward):
            return AgentReport(reward=float(reward))
        case {"lost": str(why)} if why:
            return AgentReport(lost=why)
        case {"broken": str(why)} if why:
            return AgentReport(broken=why)
        case _:
            return AgentReport(broken=f"its report cannot be read: {FORM}")
