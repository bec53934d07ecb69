"""A server on loopback for the rollouts that are open: it starts with the first and stops with the
last.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from assay.agents.session import CallSession

if TYPE_CHECKING:
    import uvicorn

REMEMBERED = 1024
"""Ended rollouts whose keys are still answered with 409."""
LINGER_SECONDS = 2
"""How long the server waits for answers that are being sent when the last rollout ends."""


@dataclass(frozen=True, slots=True)
class SessionAddress:
    """Where a session is served."""

    url: str
    """Up to /v1, the same for all sessions."""
    key: str
    """Of this session; it goes into a header, or into the path: /rollout/KEY/v1."""
    session: CallSession

    def begin(self) -> None:
        """Begin the time of the limits anew: the agent starts now."""
        self.session.begin()

    @property
    def received(self) -> int:
        """Calls so far, answered or not."""
        return self.session.received

    @property
    def learned(self) -> int:
        """Replies so far that are to be learned."""
        return len(self.session.tree.learned())

    @property
    def refusal(self) -> str:
        """Why the last call was refused, where each was as one that the policy cannot be asked;
        else empty.
        """
        return self.session.refusal if self.session.refused == self.received else ""

    @property
    def failure(self) -> BaseException | None:
        """Why the last call failed that no retry made good; None if none did."""
        return self.session.failure


class PolicyServer:
    """Serves sessions by their keys, 256 random bits each."""

    def __init__(self) -> None:
        self._sessions: dict[str, CallSession | None] = {}
        self._ended: deque[str] = deque()
        self._open = 0
        self._running: tuple[uvicorn.Server, asyncio.Task[None]] | None = None
        self._lock = asyncio.Lock()
        self._places: asyncio.Semaphore | None = None
        self._port = 0

    def places(self, count: int) -> asyncio.Semaphore:
        """The places of the agents that run at once: as many as the first caller says."""
        self._places = self._places or asyncio.Semaphore(count)
        return self._places

    @asynccontextmanager
    async def open(self, session: CallSession) -> AsyncIterator[SessionAddress]:
        """Serve a session; it is sealed when the block ends."""
        key = token_urlsafe(32)
        async with self._lock:
            self._open += 1
            if self._running is None:
                await self._start()
        self._sessions[key] = session
        try:
            yield SessionAddress(f"http://127.0.0.1:{self._port}/v1", key, session)
        finally:
            await session.seal()
            self._sessions[key] = None  # its tokens are kept by nobody here
            self._ended.append(key)
            while len(self._ended) > REMEMBERED:
                del self._sessions[self._ended.popleft()]
            async with self._lock:
                self._open -= 1
                if not self._open:
                    await self._stop()

    async def _start(self) -> None:
        import uvicorn

        from assay.agents.app import build
        from assay.agents.uvicorn_server import KEEP_ALIVE_SECONDS, EmbeddedServer

        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._port = listener.getsockname()[1]
        config = uvicorn.Config(
            build(self._sessions), lifespan="off", http="h11", ws="none", log_level="error",
            access_log=False, server_header=False, proxy_headers=False,
            timeout_graceful_shutdown=LINGER_SECONDS, timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )  # fmt: skip
        server = EmbeddedServer(config)
        self._running = server, asyncio.create_task(server.serve(sockets=[listener]))

    async def _stop(self) -> None:
        if self._running:
            server, serving = self._running
            self._running, server.should_exit = None, True
            await serving
