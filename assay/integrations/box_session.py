"""A bash in a lent box that keeps its folder, variables and background processes over commands."""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex

from assay.integrations.lent_box import CommandCause, LentBox
from assay.sandbox.kernel import MIB

BASH = "exec bash --noprofile --norc --noediting -i 2>&1"
"""Interactive, so that an interrupt ends a whole command, but without a terminal."""
SET_UP = "set +H; export -n PROMPT_COMMAND PS1 PS2; echo $$"
START_SECONDS = 30.0
LOOK_SECONDS = 0.1
"""How often to look whether an expected text has come, which may end no line."""
CUT = b"\n(output is left out here)\n"
KILL_OTHERS = """
for file in /proc/[0-9]*/stat; do
    read -r line < $file || continue
    pid=${line%% *}; set -- ${line##*) }
    [ "$3" = GROUP ] && [ "$pid" != GROUP ] && kill -9 $pid
done 2> /dev/null
true
"""
"""Kills what the bash has started: all of its group but itself."""


class SessionEndedError(Exception):
    """The bash has ended: the program that ran there ended it, or the box."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a session showed."""

    text: str
    status: int | None
    """The exit status where the shell waits for a command again; None where something runs on. It
    is what the box says: a command can forge its own."""
    expected: str = ""
    """The text that was waited for and has come, if it was one."""


class BoxSession:
    """One bash in a box. `open` starts it. Calls of one session must not overlap. If a call is
    cancelled, its command runs on.

    Every method but `close` raises SessionEndedError, and SandboxError as LentBox.
    """

    def __init__(self, box: LentBox, number: int, mark: str, most: int) -> None:
        self._box, self._number, self._most = box, number, most
        self._prompt = re.compile(rf"\n{mark}(\d+)\n".encode())
        self._seen = bytearray()
        """What has come and was not yet shown."""
        self._pid = ""
        self.runs = False
        """Whether a command runs on, which reads what is written next."""
        self.is_late = False
        """Whether nobody waited for the end of the last, which is then still to come."""

    @classmethod
    async def open(cls, box: LentBox, most: int = MIB) -> BoxSession:
        """Starts a session, which keeps up to about `most` bytes of the output of a command. Raises
        ValueError if the box has too many processes that outlive commands, SessionEndedError.
        """
        mark = token_hex(16)
        ready = f"printf '\\n{mark}%d\\n' $?; PS1= PS2="
        variables = {"PS1": "", "PS2": "", "PROMPT_COMMAND": ready}
        session = cls(box, await box.start(BASH, environment=variables), mark, most)
        try:
            await session._until_ready(START_SECONDS)
            first = await session.run(SET_UP, START_SECONDS)
        except BaseException:
            await session.close()
            raise
        session._pid = first.text.strip()
        return session

    async def run(self, text: str, seconds: float, expect: Sequence[str] = ()) -> Shown:
        """Runs a command of one line or many, with empty standard input. If an earlier command
        still runs, it first waits for its end, and drops its output. Raises TimeoutError if the
        command takes longer than `seconds`. The command then keeps running.
        """
        if self.is_late:
            begin = time.monotonic()
            try:
                await self._until_ready(seconds)
            except TimeoutError:
                raise TimeoutError("cannot run while an earlier one does: interrupt it") from None
            seconds = max(0.0, seconds - (time.monotonic() - begin))
        return await self.write(f"eval {shlex.quote(text)} < /dev/null", seconds, expect)

    async def write(self, text: str, seconds: float, expect: Sequence[str] = ()) -> Shown:
        """Writes a line to the shell or to the program that runs in it. It waits until the shell is
        ready or shows one of the `expect`ed texts. Raises TimeoutError.
        """
        data = text.encode("utf-8", "surrogateescape") + b"\n"
        self.runs = True
        return await self._until_ready(seconds, data, expect)

    async def interrupt(self, seconds: float, tries: int, expect: Sequence[str] = ()) -> Shown:
        """Interrupts what runs, as Ctrl-C does, and in the end kills it. Raises TimeoutError."""
        for _ in range(tries):
            await self._box.run(f"kill -INT -- -{self._pid}")
            try:
                return await self._until_ready(seconds, expect=expect)
            except TimeoutError:
                continue
        await self._box.run(KILL_OTHERS.replace("GROUP", self._pid))
        return await self._until_ready(seconds, expect=expect)

    async def close(self) -> None:
        """Ends the session, with all that runs in it. A second call does nothing."""
        with contextlib.suppress(ValueError):
            await self._box.stop(self._number)

    async def _until_ready(
        self, seconds: float, data: bytes = b"", expect: Sequence[str] = ()
    ) -> Shown:
        """Wait for the prompt or an expected text, and take what came before."""
        end = time.monotonic() + seconds
        self.is_late = True
        while True:
            if not data and (output := self._take(expect)) is not None:
                return output
            left = max(0.0, end - time.monotonic())
            wait = min(left, LOOK_SECONDS) if expect else left
            done = await self._box.exchange(self._number, data, seconds=wait)
            data = b""
            self._seen += done.stdout
            if (output := self._take(expect)) is not None:
                return output
            if done.cause not in (CommandCause.NONE, CommandCause.TIME):
                raise SessionEndedError(f"the shell has ended: {done.detail}")
            if time.monotonic() >= end:
                raise TimeoutError(f"took more than {seconds:g} s")
            self._cut()

    def _take(self, expect: Sequence[str]) -> Shown | None:
        """What was waited for, if it has come."""
        matches: list[tuple[int, int, str]] = []
        for text in expect:
            data = text.encode("utf-8", "surrogateescape")
            if (at := self._seen.find(data)) >= 0:
                matches.append((at, at + len(data), text))
        prompt = self._prompt.search(self._seen)
        if prompt:
            matches.append((prompt.start(), prompt.end(), ""))
        if not matches:
            return None
        start, end, text = min(matches)
        output = self._seen[:start].decode("utf-8", "backslashreplace")
        is_ready = prompt is not None and not text
        status = int(prompt[1]) if prompt and is_ready else None
        del self._seen[:end]
        self.runs, self.is_late = not is_ready, False
        return Shown(output, status, text)

    def _cut(self) -> None:
        """Keep the beginning and the end of what is too much."""
        if len(self._seen) > 2 * self._most:
            half = self._most // 2
            self._seen[half:-half] = CUT
