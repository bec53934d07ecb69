"""Renders chat templates in a process of its own. A template is a program of whoever made the
model: it may loop for years, or double a text until the machine has no memory left.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from subprocess import DEVNULL, Popen, TimeoutExpired
from threading import Lock
from typing import Any

from assay.errors import ModelError
from assay.registry import one_line
from assay.sandbox.sockets import MIB, FramedSocket, OversizedError

CPU_SECONDS = 10.0
"""Of one rendering. The longest conversations of public templates take milliseconds."""
WALL_SECONDS = 120.0
"""The same on a machine that has no time for it."""
MEMORY_MB = 1024
"""Of the whole process."""
MOST = 16 * MIB
"""Bytes of a rendering: several times what the longest contexts hold."""
MOST_REQUEST = 1024 * MIB
STARTS = 2
"""How often a process is started for one rendering before its end counts as the template's."""
REPAIR = "repair chat_template in the model's folder, or set policy.chat = 'text'"


class TemplateError(Exception):
    """A template refuses what it got, or falls over it."""


class TemplateProcess:
    """One process for all templates of ours, started with the first rendering."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: Popen[bytes] | None = None
        self._sock: FramedSocket | None = None

    def render(self, template: str, messages: Sequence[Any], variables: dict[str, Any]) -> str:
        """The messages as the template shows them; `variables` hold what else it may read.

        Raises TemplateError where the template does not take them; ModelError where it takes too
        long, or too much memory, or writes too much.
        """
        request = json.dumps([template, messages, variables]).encode()
        with self._lock:
            reply = self._answer(request)
        text = reply[1:].decode(errors="surrogatepass")
        if reply[:1] == b"-":
            raise TemplateError(text)
        return text

    def _answer(self, request: bytes) -> bytes:
        how = 0
        for _ in range(STARTS):
            sock = self._sock or self._start()
            try:
                sock.send(request)
                return sock.receive()
            except OversizedError:
                self._end()
                raise ModelError(
                    f"the model's chat template writes over {MOST // MIB} MiB for one conversation:"
                    f" {REPAIR}"
                ) from None
            except TimeoutError:
                self._end()
                raise ModelError(
                    f"the model's chat template takes over {WALL_SECONDS:g} s for one"
                    f" conversation: {REPAIR}"
                ) from None
            except ConnectionError:
                how = self._end()
                if how == -signal.SIGPROF:
                    raise ModelError(
                        f"the model's chat template takes over {CPU_SECONDS:g} s for one"
                        f" conversation: {REPAIR}"
                    ) from None
            except BaseException:  # an interrupt: the answer to come is nobody's
                self._end()
                raise
        raise ModelError(f"the model's chat template ends its process ({how}): {REPAIR}")

    def _start(self) -> FramedSocket:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", __name__, str(theirs.fileno()), str(CPU_SECONDS)]
        quiet = {"USE_TORCH": "0", "OPENBLAS_NUM_THREADS": "1"}  # it needs no torch to start
        with theirs:
            self._process = Popen(
                command, stdin=DEVNULL, stderr=DEVNULL, pass_fds=[theirs.fileno()], process_group=0,
                env={**os.environ, **quiet},
            )  # fmt: skip
        ours.settimeout(WALL_SECONDS)
        self._sock = FramedSocket(ours, MOST)
        return self._sock

    def _end(self) -> int:
        """End the process; returns its exit status."""
        process, sock = self._process, self._sock
        self._process = self._sock = None
        if sock:
            sock.stream.close()
        if process is None:
            return 0
        try:
            return process.wait(timeout=1)
        except TimeoutExpired:
            process.kill()
            return process.wait()

    def forget(self) -> None:
        """Start another process with the next rendering: after a fork, this one is the parent's."""
        self._lock = Lock()
        if self._sock:
            self._sock.stream.close()
        self._process = self._sock = None


PROCESS = TemplateProcess()
os.register_at_fork(after_in_child=PROCESS.forget)


def apply_template(
    tokenizer: Any, messages: Sequence[Any], chat_template: str | None = None, tools: Any = None,
    **arguments: Any,
) -> str:  # fmt: skip
    """What `tokenizer.apply_chat_template` returns without tokenizing, as `TemplateProcess` renders
    it. A tokenizer with a method of its own is code that is trusted, and is asked itself.
    """
    from transformers import PreTrainedTokenizerBase

    apply = tokenizer.apply_chat_template
    if getattr(apply, "__func__", None) is not PreTrainedTokenizerBase.apply_chat_template:
        return str(
            apply(messages, chat_template=chat_template, tools=tools, tokenize=False, **arguments)
        )
    if not messages:
        raise TemplateError("no messages")
    template = tokenizer.get_chat_template(chat_template, tools)
    return PROCESS.render(template, messages, {
        **tokenizer.special_tokens_map, "tools": tools, **arguments,
    })  # fmt: skip


def serve(descriptor: int, cpu_seconds: float) -> None:
    """Answer requests until the other side hangs up."""
    from transformers.utils.chat_template_utils import render_jinja_template

    sock = FramedSocket(socket.socket(fileno=descriptor), MOST_REQUEST)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MB * MIB, MEMORY_MB * MIB))
    while True:
        try:
            template, messages, variables = json.loads(sock.receive())
        except ConnectionError:
            return
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)  # SIGPROF ends the process
        try:
            texts, _ = render_jinja_template([messages], chat_template=template, **variables)
            reply = b"+" + texts[0].encode(errors="surrogatepass")
        except MemoryError:
            return  # the other side says that it ended
        except Exception as error:  # noqa: BLE001  templates refuse by any error
            # jinja's own has the name of ours
            reason = one_line(error).removeprefix(f"{TemplateError.__name__}: ")
            reply = b"-" + reason.encode(errors="replace")
        signal.setitimer(signal.ITIMER_PROF, 0)
        with suppress(ConnectionError):  # a reply of more than the other side takes
            sock.send(reply)


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]))
