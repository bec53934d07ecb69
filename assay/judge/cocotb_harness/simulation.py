"""In the simulator, beside the design: calls those functions of `cocotb.simulator` that the process
of the tests names. It holds nothing of the tests.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import types
from collections.abc import Iterator
from functools import partial
from typing import Any

from assay.sandbox.sockets import FramedSocket

MOST_BYTES = 1 << 30
"""Most bytes of what the tests ask for at once."""


def start() -> None:
    """Begin when the simulator has loaded the design, and nothing of it has run."""
    parent = sys.modules["cocotb"] = types.ModuleType("cocotb")  # the whole package takes long
    parent.__path__ = [f"{folder}/cocotb" for folder in sys.path]
    simulator = importlib.import_module("cocotb.simulator")
    Simulation(simulator, socket.socket(fileno=int(os.environ["ASSAY_SOCKET"]))).serve()


class Simulation:
    """What the tests ask for through a socket, done with the simulator's module."""

    def __init__(self, simulator: Any, stream: socket.socket) -> None:
        self._channel = FramedSocket(stream, MOST_BYTES)
        self._encode = json.JSONEncoder(default=self._encoded).encode
        self._decode = json.JSONDecoder(object_hook=self._decoded).decode
        simulator.clock_create = partial(RunningClock, simulator)
        # the module is 0; the design's objects have numbers below, what the tests make above
        self._objects: dict[int, Any] = {0: simulator}
        self._numbers: dict[Any, int] = {}

    def serve(self) -> None:
        """Call what the tests name, until they let the simulation go on."""
        goes_on = False
        while not goes_on:
            try:
                lines = self._channel.receive().decode().split("\n")
            except ConnectionError:
                os._exit(1)
            goes_on = self._do(lines)

    def _do(self, lines: list[str]) -> bool:
        """Call what one frame names: its last call has an answer, unless that is to go on. What
        raises is the answer, and the rest is left. Whether the simulation goes on.
        """
        for line in lines:
            number, name, arguments, new = self._decode(line)
            if name == "go_on":
                return True
            try:
                value = getattr(self._objects.get(number), name, lambda: None)(*arguments)
            except Exception as error:  # noqa: BLE001  the tests get it
                self._send(["raised", f"{type(error).__name__}: {error}"])
                break
            if new is None:
                self._send(["value", value])
            elif new:
                self._objects[new] = value
        return False

    def fired(self, number: int) -> None:
        """Tell the tests that a callback fired, and serve them meanwhile."""
        self._objects.pop(number, None)
        self._send(number)
        self.serve()

    def _send(self, message: object) -> None:
        self._channel.send(self._encode(message).encode())

    def _encoded(self, value: Any) -> object:
        if isinstance(value, bytes):
            return {"bytes": value.decode("latin-1")}
        if isinstance(value, Iterator):
            return list(value)
        number = self._numbers.setdefault(value, -len(self._numbers) - 1)
        self._objects[number] = value
        return {"object": number}

    def _decoded(self, fields: dict[str, Any]) -> object:
        if "callback" in fields:
            return partial(self.fired, fields["callback"])
        bytes_ = fields.get("bytes")
        return self._objects[fields["object"]] if bytes_ is None else bytes_.encode("latin-1")


class RunningClock:
    """Writes when cocotb's clock in Python would: as soon as the simulator takes values; an
    `action` other than 0 writes at once.
    """

    def __init__(self, simulator: Any, signal: Any) -> None:
        self._simulator, self._signal = simulator, signal

    def start(self, period: int, high: int, level: bool, action: int) -> None:
        """Begin with a level. Times are in the simulator's steps."""
        self._steps, self._action = (period - high, high), action
        self._set(level)

    def _set(self, level: bool) -> None:
        write = partial(self._signal.set_signal_val_binstr, self._action, str(int(level)))
        if self._action:
            write()
        else:
            self._simulator.register_rwsynch_callback(write)
        later = self._simulator.register_timed_callback
        self._timer = later(self._steps[level], self._set, not level)

    def stop(self) -> None:
        """Stop for good."""
        self._timer.deregister()
