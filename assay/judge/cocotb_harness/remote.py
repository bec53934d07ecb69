"""In the process of the tests: cocotb, whose simulator runs in another process, beside the design.
From there come values, as JSON; they are all that the design can do to the tests.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from assay.sandbox.sockets import FramedSocket

MAKES = ("register_", "clock_create", "set_sim_event_")
"""Starts of names of functions whose result gets a number from here."""
NO_ANSWER = ("set_signal_", "deregister", "start", "stop")
"""Starts of names of functions that answer nothing."""
LOCAL = ("initialize_logger", "set_gpi_log_level", "is_running")
GO_ON = '[0, "go_on", [], 0]'
MOST_BYTES = 16 << 20
"""Most bytes of what the simulator says at once."""
KEPT = ("GPI_USERS", "PYGPI_PYTHON_BIN", "PATH")
"""What the simulator needs of the environment."""


@dataclass(frozen=True)
class RemoteHandle:
    """An object of the simulator's, by its number there."""

    number: int
    wire: Wire

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(self.wire.call, self.number, name)


class Wire:
    """Calls functions in the simulator's process, and from there callbacks here."""

    def __init__(self, stream: socket.socket) -> None:
        self._channel = FramedSocket(stream, MOST_BYTES)
        self._encode = json.JSONEncoder(default=self._encoded).encode
        self._decode = json.JSONDecoder(object_hook=self._decoded).decode
        self._unsent: list[str] = []
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._last_number = 0

    def call(self, number: int, name: str, *arguments: Any) -> Any:
        """Call a function of the object of this number.

        Raises RuntimeError with what it raised, ConnectionError where the simulator has ended.
        """
        new = 0 if name.startswith(NO_ANSWER) else None
        if name.startswith(MAKES):
            new = self._last_number = self._last_number + 1
        if name == "deregister":
            self._callbacks.pop(number, None)
        self._unsent.append(self._encode((number, name, arguments, new)))
        return self._answer() if new is None else RemoteHandle(new, self) if new else None

    def go_on(self) -> None:
        """Let the simulation go on until it has ended."""
        self._unsent.append(GO_ON)
        while message := self._received():
            self._fire(message)

    def _encoded(self, value: Any) -> object:
        if isinstance(value, bytes):
            return {"bytes": value.decode("latin-1")}
        if isinstance(value, RemoteHandle):
            return {"object": value.number}
        self._callbacks[self._last_number] = value
        return {"callback": self._last_number}

    def _decoded(self, fields: dict[str, Any]) -> object:
        text = fields.get("bytes")
        return RemoteHandle(fields["object"], self) if text is None else text.encode("latin-1")

    def _received(self) -> Any:
        """The answer to all that is unsent, a line each; empty where the simulator has ended."""
        self._channel.send("\n".join(self._unsent).encode())
        self._unsent.clear()
        try:
            return self._decode(self._channel.receive().decode())
        except ConnectionError:
            return []

    def _answer(self) -> Any:
        while message := self._received():
            if not isinstance(message, int) and message[0] == "value":
                return message[1]
            self._fire(message)
        raise ConnectionError("the simulator has ended")

    def _fire(self, message: Any) -> None:
        if not isinstance(message, int):
            raise RuntimeError(message[1])
        self._callbacks.pop(message)()
        self._unsent.append(GO_ON)


class Clock:
    """A clock of simulation.py. It begins when the task of one of cocotb's own would."""

    def __init__(self, remote: RemoteHandle) -> None:
        self.begin, self.stop = remote.start, remote.stop

    def start(self, *times: int) -> None:
        """Begin with these times."""
        from cocotb import start_soon

        async def begin() -> None:
            self.begin(*times)

        start_soon(begin())


def run(command: list[str], environment: Mapping[str, str], enclose: Callable[[], None]) -> None:
    """Run the tests that the environment names on the design that a command simulates. `enclose`
    runs in the simulator's process before it starts. Raises ImportError where the tests cannot be
    loaded.
    """
    os.environ.update(environment)  # read on import
    from cocotb import clock, simulator
    from cocotb_tools import config
    from pygpi.entry import load_entry

    module: Any = simulator
    ours, theirs = socket.socketpair()  # unlike a pipe, a design cannot open it in /proc
    variables = {name: environment[name] for name in KEPT} | {
        "ASSAY_SOCKET": str(theirs.fileno()), "GPI_LOG_LEVEL": "ERROR",
        "LD_LIBRARY_PATH": str(config.libs_dir), "PYTHONPATH": environment["ASSAY_PATH"],
        "PYGPI_USERS": "simulation:start",
    }  # fmt: skip
    simulation = subprocess.Popen(
        command, env=variables, stdin=subprocess.DEVNULL, stdout=2, pass_fds=(theirs.fileno(),),
        preexec_fn=enclose,
    )  # fmt: skip
    theirs.close()
    wire = Wire(ours)
    for name in (name for name in dir(module) if name.islower() and name[0] != "_"):
        setattr(module, name, partial(wire.call, 0, name))
    for name in LOCAL:
        setattr(module, name, lambda *_: True)
    module.clock_create = lambda signal: Clock(wire.call(0, "clock_create", signal))
    clock._trust_inertial = True  # has clocks made by that
    load_entry()  # where it raises, the simulator ends with this process
    wire.go_on()
    simulation.wait()
