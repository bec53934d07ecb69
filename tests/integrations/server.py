"""A real server process on a free port of loopback, and a client for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
LONG_SECONDS = 60.0
"""Far more than any answer takes, so that a test that hangs fails."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Message
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True, slots=True)
class Server:
    port: int
    process: subprocess.Popen[str]

    def connection(self) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=LONG_SECONDS)

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request on a connection of its own; a body that is no text is sent as JSON."""
        data = body if isinstance(body, str | bytes) or body is None else json.dumps(body)
        connection = self.connection()
        connection.request(
            method, path, data, {"Content-Type": "application/json", **(headers or {})}
        )
        response = connection.getresponse()
        answer = Answer(response.status, response.headers, response.read().decode())
        connection.close()
        return answer

    @property
    def running(self) -> int:
        """Requests whose programs run."""
        found: int = self.ask("GET", "/health").json["running"]
        return found

    def post(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Answer:
        return self.ask("POST", path, body, headers)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit code, once it has ended."""
        self.process.send_signal(number)
        return self.process.wait(LONG_SECONDS)


@contextmanager
def serving(*options: str, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A server that is ready; ended on the way out if it still runs."""
    command = [sys.executable, "-m", "tests.integrations.launch", "--port", "0", *options]
    environ = {**os.environ, **(environment or {})}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environ
    ) as process:
        try:
            assert process.stdout
            line = process.stdout.readline()
            assert "assay serves on http://" in line, line
            yield Server(int(line.rpartition(":")[2]), process)
        finally:
            process.terminate()
            process.wait(LONG_SECONDS)


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that takes no time worth naming."""
    given_up = time.monotonic() + LONG_SECONDS
    while not condition():
        assert time.monotonic() < given_up, "it never came about"


def children(pid: int) -> set[int]:
    """The processes that one started, and still has."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.add(int(entry.name))
    return found


def descendants(pid: int) -> set[int]:
    """Every process below one."""
    direct = children(pid)
    return direct.union(*map(descendants, direct))
