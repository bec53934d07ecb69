"""What an agent reports that judges its rollout itself, and the socket through which it does."""

import asyncio
import json
import socket
from dataclasses import dataclass
from math import isfinite
from types import TracebackType
from typing import Self

VARIABLE = "ASSAY_REPORT_FD"
"""Tells an agent the number of its end of the socket."""
FORM = (
    'it must write {"reward": 0.5}, {"lost": "why"} or {"broken": "why"} once to the descriptor'
    f" whose number is in {VARIABLE}, and keep that from other programs"
)
"""What an agent must do whose report cannot be read."""
MOST_BYTES = 1 << 16
"""A longer report is none."""
SHOWN = 60
"""Characters of a report that an error shows."""


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
    """The report that is all of a text; `broken` where that is none, or more than one."""
    try:
        match json.loads(text):
            case {"reward": int() | float() as reward} if type(reward) is not bool:
                if isfinite(number := float(reward)):
                    return AgentReport(reward=number)
            case {"lost": str(why)} if why:
                return AgentReport(lost=why)
            case {"broken": str(why)} if why:
                return AgentReport(broken=why)
    except (ValueError, OverflowError, RecursionError):
        pass
    beginning = ascii(text[:SHOWN]) if text else "nothing"
    return AgentReport(broken=f"its report cannot be read ({beginning}): {FORM}")


class ReportSocket:
    """What an agent writes into a socket of its own, as it comes: no more than a report may have.

    A program that got the descriptor from the agent can add to the report, and take nothing away:
    with the agent's own report there are two then, which are none. It is no pipe, since /proc opens
    a pipe for reading too.
    """

    def __init__(self) -> None:
        self._end, self._agents = socket.socketpair()
        self._end.setblocking(False)
        self._end.shutdown(socket.SHUT_WR)
        self.descriptor = self._agents.fileno()
        self._data = bytearray()

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._end, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        asyncio.get_running_loop().remove_reader(self._end)
        self._end.close()
        self._agents.close()

    def _take(self) -> bool:
        """Take what is there. Whether there may be more."""
        try:
            self._data += self._end.recv(MOST_BYTES)
        except BlockingIOError:
            return False
        if len(self._data) > MOST_BYTES:
            asyncio.get_running_loop().remove_reader(self._end)
            return False
        return True

    def read(self) -> AgentReport:
        """The report of an agent that has ended."""
        while self._take():
            pass
        return read_report(self._data.decode("utf-8", "replace"))
