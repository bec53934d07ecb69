"""Client of one `assay serve` service."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import socket
from dataclasses import dataclass, field
from typing import TypeVar

import httpx2
from pydantic import TypeAdapter

from assay.errors import DataError, NotInstalledError, SettingsError
from assay.judges.terms import FULL, NOT_INSTALLED, Sendable, Terms
from assay.types import Execution, printable

T = TypeVar("T")
log = logging.getLogger(__name__)
ANSWER_SECONDS = 20.0
"""Time in which a service must tell its terms: else it hangs."""
ANSWER_BYTES = 2**24
"""A service's longest answer."""
REASON = 300
"""Characters of an answer that are shown."""
AHEAD = 2
"""Programs per slot that a service has at once, so that it need not wait for the next."""
TASK_UNKNOWN = 404
"""Answer to the key of a task that the service does not have, or not any more."""
REFUSED = (413, 422)
"""Answers to a task that is too large, or that is none."""
KEEP_ALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10), (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]  # fmt: skip
"""A connection whose other end is gone without a word is noticed in a minute."""
TERMS, EXECUTION = TypeAdapter(Terms), TypeAdapter(Execution)


class LostError(Exception):
    """A service failed: what it was judging goes to another one."""


class FullError(Exception):
    """A service has no place for a program, because others use it too."""


@dataclass(slots=True, eq=False)
class ServiceClient:
    """One service, and its state."""

    url: str
    token: str = field(repr=False)
    terms: Terms | None = None
    """None while it is not in use."""
    failure: str = "it did not answer yet"
    jobs: set[asyncio.Task[Execution]] = field(default_factory=set)
    in_use: int = 0
    """Its places that are taken, by jobs or by programs that are about to be."""
    sent: set[str] = field(default_factory=set)
    """Keys of the tasks that it got."""
    most: float = math.inf
    """Programs that it takes at once while it is full, until the next look."""
    http: httpx2.AsyncClient = field(init=False)

    def __post_init__(self) -> None:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        self.http = httpx2.AsyncClient(
            headers=headers, timeout=httpx2.Timeout(None, connect=ANSWER_SECONDS),
            transport=httpx2.AsyncHTTPTransport(
                limits=httpx2.Limits(max_connections=None), socket_options=KEEP_ALIVE
            ),
            trust_env=False,
        )  # fmt: skip

    @property
    def places(self) -> int:
        """How many more programs it may be sent."""
        if not self.terms:
            return 0
        return int(min(AHEAD * self.terms.slots, self.most)) - self.in_use

    @property
    def load(self) -> float:
        """Programs per slot."""
        return self.in_use / self.terms.slots if self.terms else math.inf

    def lose(self, failure: str) -> None:
        """Use it no longer, until it tells its terms again."""
        if self.terms:
            log.warning("lost the judge service %s: %s", self.url, failure)
        self.terms, self.failure = None, failure
        self.sent.clear()

    async def offer(self) -> Terms:
        """Its terms. Raises SettingsError where it refuses, LostError."""
        status, answer = await self._ask("GET", "/terms", None, ANSWER_SECONDS)
        if 300 <= status < 500:
            asks = "; set ASSAY_TOKEN to the services' token" * (status == 401)
            raise SettingsError(f"it refuses with {status}: {self._reason(answer)}{asks}")
        if status != 200:
            raise LostError(f"it answers {status}: {self._reason(answer)}")
        terms = _read(TERMS, answer)
        if terms.slots < 1:
            raise LostError("its answer is broken: it has no slots")
        return terms

    async def judge(self, task: Sendable, program: str, is_known: bool) -> Execution:
        """The verdict on a program; one that `is_known` there goes as its key. Raises DataError
        where the task is refused, FullError, LostError.
        """
        field = f'"task_key": "{task.key}"' if is_known else f'"task": {task.row}'
        body = f'{{{field}, "program": {json.dumps(program)}}}'
        status, answer = await self._ask("POST", "/judge", body)
        if status == TASK_UNKNOWN and is_known:
            return await self.judge(task, program, is_known=False)
        if status in (NOT_INSTALLED, *REFUSED):
            why = f"the judge service {self.url} refuses it: {self._reason(answer)}"
            error = NotInstalledError if status == NOT_INSTALLED else DataError
            raise error(f"task {task.task.id!r}: {why}")
        if status == 503 and FULL in answer.decode("utf-8", "replace"):
            raise FullError
        if status != 200:
            raise LostError(f"it answers {status}: {self._reason(answer)}")
        execution = _read(EXECUTION, answer)
        counts = execution.passed, execution.total - execution.passed
        measured = execution.cpu_seconds, execution.wall_seconds, execution.memory_mb
        if not all(0 <= number < math.inf for number in (*counts, *measured)):
            raise LostError("its answer is broken: it has impossible numbers")
        return execution

    async def _ask(
        self, method: str, path: str, body: str | None, seconds: float | None = None
    ) -> tuple[int, bytes]:
        """Status and body of an answer."""
        answer = bytearray()
        try:
            async with (
                asyncio.timeout(seconds),
                self.http.stream(method, self.url + path, content=body) as response,
            ):
                async for chunk in response.aiter_raw():
                    answer += chunk
                    if len(answer) > ANSWER_BYTES:
                        raise LostError("its answer is too long")
        except (httpx2.HTTPError, TimeoutError) as error:
            raise LostError(f"{type(error).__name__}: {error}".strip(": ")) from None
        return response.status_code, bytes(answer)

    def _reason(self, answer: bytes) -> str:
        """Why it refuses, in a line that does not hold the token."""
        text = answer.decode("utf-8", "replace")
        with contextlib.suppress(ValueError, TypeError, KeyError):
            text = json.loads(answer)["error"]
        text = str(text)
        return printable((text.replace(self.token, "***") if self.token else text)[:REASON])


def _read(kind: TypeAdapter[T], answer: bytes) -> T:
    """An answer. Raises LostError where it is broken."""
    try:
        return kind.validate_json(answer, strict=True)
    except ValueError as error:
        raise LostError(f"its answer is broken: {printable(str(error))[:REASON]}") from None
