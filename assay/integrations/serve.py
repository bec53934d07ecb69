"""Runs the service until a signal stops it: socket, token, slow clients and shutdown."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from assay.agents.uvicorn_server import KEEP_ALIVE_SECONDS
from assay.errors import SettingsError
from assay.integrations.readers import Readers
from assay.integrations.service import Bounds, build
from assay.judge import Judge
from assay.judges.terms import require_sendable
from assay.paths import read_bytes

HEADER_SECONDS = 10.0
"""Time in which a client must send a request's head."""
STALLED_SECONDS = 60
"""How long a client may leave an answer unread."""
DRAIN_SECONDS = 10
"""Time for running requests after a stop signal; then they are cancelled."""
SPARE = 256
"""Connections allowed beyond the requests that run or wait."""


class Impatient(H11Protocol):
    """HTTP/1.1 that hangs up on clients whose request head does not end in time."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connects: start its timer."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """A part of a request arrives."""
        super().data_received(data)
        self._watch()

    def _watch(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self._timer = self._timer or self.loop.call_later(HEADER_SECONDS, self.transport.close)
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def serve(
    judge: Judge,
    host: str,
    port: int,
    token_file: Path | None,
    bounds: Bounds,
    announce: Callable[[str], None],
    plugins: Sequence[Path] = (),
) -> None:
    """Serve `judge` until SIGINT or SIGTERM; port 0 takes a free port. `announce` gets the address.
    plugins: files of plug-ins that are loaded.

    Raises SettingsError for an address that is not available, or that other machines can reach
    without a token.
    """
    token = token_of(host, token_file)
    with listening(host, port) as listener, closing(Readers(plugins)) as readers:
        async with judge:
            app = build(judge, bounds, readers, token)
            most = judge.slots + bounds.waiting + SPARE
            await until_stopped(
                app, listener, lambda origin: announce(f"assay serves on {origin}"), most
            )


async def until_stopped(
    app: ASGIApp, listener: socket.socket, announce: Callable[[str], None], most: int | None = None
) -> None:
    """Serve an application until SIGINT or SIGTERM, to up to `most` connections at once. `announce`
    gets its URL without a path.
    """
    config = uvicorn.Config(
        app, lifespan="off", http=Impatient, ws="none", log_level="error", access_log=False,
        server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS, limit_concurrency=most,
    )  # fmt: skip
    host, port = listener.getsockname()[:2]
    announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # uvicorn catches and raises them again
    gc.collect()
    gc.freeze()  # collections then leave out what is imported, which takes 50 to 140 ms each
    await uvicorn.Server(config).serve(sockets=[listener])


def token_of(host: str, file: Path | None) -> str | None:
    """The token from the file, or from ASSAY_TOKEN. Raises SettingsError if a needed one is
    missing.
    """
    try:
        token = (read_bytes(file).decode() if file else os.environ.get("ASSAY_TOKEN", "")).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise SettingsError(
            f"the token file {file} cannot be read ({why}); name a file that holds the token"
        ) from None
    if file and not token:
        raise SettingsError(f"the token file {file} is empty; write a long random word into it")
    require_sendable(token, f"the token file {file}" if file else "ASSAY_TOKEN")
    if not token and not is_loopback(host):
        raise SettingsError(
            f"{host!r} can be reached from other machines; give a token with --token-file or"
            " ASSAY_TOKEN, or serve on 127.0.0.1"
        )
    return token or None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening(host: str, port: int) -> socket.socket:
    """A bound socket. Raises SettingsError if the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError, TypeError) as error:  # Python has no other for an odd name
        raise SettingsError(
            f"cannot listen on {host!r}, port {port}: {error}; choose another --host or --port"
        ) from None
    # asyncio does not, and a kept connection would wait 40 ms for each answer
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_SECONDS * 1000)
    return listener
