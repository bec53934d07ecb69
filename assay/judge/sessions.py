"""Interpreters as the supervisor holds them: a leaf for each, which keeps its state and is stopped
between blocks.

Of what a leaf says one byte is looked at; what it prints is kept, head and tail, and never
understood.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from assay.judge.buffered_socket import BufferedSocket
from assay.judge.processes import CandidateProcess, is_stopped, kill, pid_of, starved_seconds
from assay.judge.protocol import DONE, RAISED
from assay.judge.slot import DEATH_SECONDS, SESSION_MB, SESSION_THREADS, SESSIONS, QueuedJob, Slot
from assay.judge.verdict import RunRecord, judged
from assay.judge.wire_job import SESSION
from assay.sandbox.kernel import said
from assay.sandbox.limits import LONGEST, MIB
from assay.sandbox.zygote import MESSAGE
from assay.types import Verdict

KEPT = 4096
"""Bytes of a block's output that are kept of its head, and of its tail."""
ENDS = {DONE: "done", RAISED: "error"}
LOST = {
    Verdict.TIMEOUT: "timeout",
    Verdict.MEMORY: "memory",
    Verdict.OUTPUT: "output",
    Verdict.INFRA: "infra",
}
"""What ends an interpreter, by verdict; any other is `died`."""
GONE = "the interpreter is gone"
DESCRIPTORS = 4
"""The share of the supervisor's descriptors that interpreters, of three each, may take."""


@dataclass(slots=True)
class Block:
    """One block of code, from the order until the answer."""

    request: QueuedJob
    session: int
    """The number of the order that opened its interpreter; 0 where it is to open one."""
    code: bytes
    seen: RunRecord = field(default_factory=RunRecord)
    deadline: float = 0.0
    next_look: float = 0.0
    cpu_seconds: float = 0.0
    starved: float = 0.0
    head: bytearray = field(default_factory=bytearray)
    tail: bytes = b""
    printed: int = 0

    def read(self, source: int) -> bool:
        """Take what was printed. False where there is nothing more, now or ever."""
        try:
            chunk = os.read(source, MESSAGE)
        except BlockingIOError:
            return False
        space = KEPT - len(self.head)
        self.head += chunk[:space]
        self.tail = (self.tail + chunk[space:])[-KEPT:]
        self.printed += len(chunk)
        return bool(chunk)

    @property
    def output(self) -> str:
        """What is kept of what was printed; it may be any bytes."""
        left_out = self.printed - len(self.head) - len(self.tail)
        between = f"\n[... {left_out} bytes left out ...]\n".encode() if left_out else b""
        return (bytes(self.head) + between + self.tail).decode("utf-8", "replace")


@dataclass(slots=True, eq=False)
class Session:
    """One interpreter. `block` is what runs in it; without one it is stopped."""

    number: int
    slot: Slot
    leaf: CandidateProcess
    wire: BufferedSocket
    block: Block | None = None

    def begin(self, block: Block) -> None:
        """Let it run, until time is up: that of the block, or of all blocks together."""
        limits = block.request.limits
        pid, now = pid_of(self.leaf.pidfd), time.monotonic()
        block.cpu_seconds = min(limits.cpu_seconds, LONGEST * limits.cpu_seconds - self.leaf.spent)
        block.deadline, block.next_look = now + limits.wall_seconds, now + block.cpu_seconds
        block.starved = starved_seconds(pid)
        self.block = block
        kill(self.leaf.pidfd, signal.SIGCONT)
        self.wire.send(block.code)

    def overdue(self, now: float) -> str:
        """Why it is to be ended: `cpu`, `wall`, `frozen` (someone else has stopped it); empty where
        time is left.
        """
        block = self.block
        if block is None:
            return ""
        if now >= block.next_look:
            left = block.cpu_seconds - self.leaf.cpu_seconds
            block.next_look = now + max(0.002, left)
            if left <= 0:
                return "cpu"
        if now >= block.deadline:
            pid = pid_of(self.leaf.pidfd)
            late, block.starved = starved_seconds(pid) - block.starved, starved_seconds(pid)
            block.deadline += late
            if late <= 0.01:
                return "frozen" if is_stopped(pid) else "wall"
        return ""

    def stop(self, block: Block) -> list[str] | None:
        """Stop it after a block; what it holds that it may not keep, as a worker's report would say
        it.
        """
        self.leaf.spent += self.leaf.cpu_seconds
        kill(self.leaf.pidfd, signal.SIGSTOP)
        while block.read(self.leaf.printed):
            pass
        lines = (
            line.split() for line in said(f"/proc/{pid_of(self.leaf.pidfd)}/status").splitlines()
        )
        status = {line[0]: line[1] for line in lines if len(line) > 1}
        if "RssAnon:" not in status:
            return ["gone", ""]  # it ended after it had said that its block did
        if sum(int(status[name]) for name in ("RssAnon:", "VmPTE:")) > SESSION_MB * 1024:
            return ["memory", f"held more than {SESSION_MB} MiB when the code had ended"]
        if int(status["Threads:"]) > 1 + SESSION_THREADS:
            return ["error", f"left more than {SESSION_THREADS} threads running"]
        self.block = None
        return None

    def close(self) -> None:
        """Let go of every descriptor."""
        self.wire.stream.close()  # which is the leaf's own
        os.close(self.leaf.printed)
        os.close(self.leaf.pidfd)


Answer = Callable[[int, str, str, str], None]
"""Takes an order's number, how its block ended, the output, and the reason in a line."""


class Sessions:
    """All interpreters; of `descriptors` that there may be, they take their share."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        ignore: Callable[..., None],
        answer: Answer,
        descriptors: int,
    ) -> None:
        self.selector = selector
        self.ignore = ignore
        self.answer = answer
        self.most = min(SESSIONS, descriptors // DESCRIPTORS)
        self.waiting: dict[int, Block] = {}
        self.open: dict[int, Session] = {}
        self.running: dict[Slot, Session] = {}
        self.unreaped: dict[tuple[Slot, int], Session] = {}

    def take(self, request: QueuedJob) -> None:
        """An order has come: code for an interpreter."""
        (session,) = SESSION.unpack_from(request.order.payload)
        self.waiting[request.number] = Block(
            request, session, request.order.payload[SESSION.size :]
        )

    def assign(self, slots: Sequence[Slot]) -> None:
        """Run what waits: one block in a slot at a time, beside what is judged there."""
        free = [slot for slot in slots if slot not in self.running]
        for block in [*self.waiting.values()] if free else []:
            number = block.request.number
            session = self.open.get(block.session) if block.session else self._opened(number, free)
            if session is not None and session.slot in free:
                del self.waiting[number]
                free.remove(session.slot)
                self.running[session.slot] = session
                session.begin(block)
                self._listen(session)
            elif session is None and block.session:
                del self.waiting[number]
                self.answer(number, "infra", "", GONE)

    def _opened(self, number: int, free: Sequence[Slot]) -> Session | None:
        """A new interpreter, where the fewest are; None where there is no room."""
        ready = [slot for slot in free if slot.candidates]
        if not ready or len(self.open) + len(self.unreaped) >= self.most:
            return None
        slots = [session.slot for session in self.open.values()]
        slot = min(ready, key=slots.count)
        leaf = slot.taken()
        self.open[number] = Session(
            number, slot, leaf, BufferedSocket(socket.socket(fileno=leaf.wire))
        )
        return self.open[number]

    def _listen(self, session: Session) -> None:
        self.selector.register(
            session.wire.stream, selectors.EVENT_READ, lambda: self._hear(session)
        )
        self.selector.register(
            session.leaf.printed, selectors.EVENT_READ, lambda: self._read(session)
        )

    def _read(self, session: Session) -> None:
        block = session.block
        if block is None or not block.read(session.leaf.printed):
            self.ignore(session.leaf.printed)
        elif block.printed > block.request.limits.printed_mb * MIB:
            self._end(session, stopped="printed")

    def _hear(self, session: Session) -> None:
        """The byte that ends a block; any other, or its silence, ends the interpreter."""
        try:
            says = session.wire.stream.recv(MESSAGE)
        except OSError:
            says = b""
        block = session.block
        if block is None or says not in ENDS:
            self._end(
                session,
                ["forbidden", "wrote to the interpreter's own channel"] if says else ["gone", ""],
            )
        elif broken := session.stop(block):
            self._end(session, broken)
        else:
            self._leave(session)
            self.answer(block.request.number, ENDS[says], block.output, "")

    def _leave(self, session: Session) -> None:
        """Listen to it no more, and let others run in its slot."""
        self.ignore(session.wire.stream, session.leaf.printed)
        if self.running.get(session.slot) is session:
            del self.running[session.slot]

    def _end(
        self, session: Session, broken: Sequence[str] = ("gone", ""), stopped: str = ""
    ) -> None:
        """Kill an interpreter; its block is answered when it is reaped."""
        self._leave(session)
        del self.open[session.number]
        if session.block is not None:
            seen = session.block.seen
            seen.report, seen.stopped = {"setup": "", "broken": broken, "checks": []}, stopped
            seen.alive = not session.leaf.is_dead(
                DEATH_SECONDS if broken[0] == "gone" and not stopped else 0
            )
            seen.killed_for_memory = (
                not seen.alive and session.slot.group is not None and session.slot.group.killed()
            )
        kill(session.leaf.pidfd)
        self.unreaped[session.slot, session.leaf.pid] = session
        session.slot.reap([session.leaf.pid])

    def reaped(
        self, slot: Slot, pid: int, status: int, cpu_seconds: float, memory_mb: float
    ) -> None:
        """A leaf of a slot's is reaped; if it was an interpreter whose block is to be answered,
        that is done.
        """
        session = self.unreaped.pop((slot, pid), None)
        block = session.block if session else None
        if session and block:
            while block.read(session.leaf.printed):
                pass
            seen = block.seen
            seen.status, seen.cpu_seconds, seen.memory_mb = (
                status,
                cpu_seconds - session.leaf.spent,
                memory_mb,
            )
            verdict, detail = judged(seen, block.request.limits)
            self.answer(block.request.number, LOST.get(verdict, "died"), block.output, detail)
        if session:
            session.close()

    def cancel(self, number: int) -> None:
        """Drop a block that waits, or the interpreter that was opened under the number with what
        runs in it.
        """
        self.waiting.pop(number, None)
        if session := self.open.get(number):
            session.block = None
            self._end(session)

    def lose(self, slot: Slot, why: str) -> None:
        """A slot's zygote is gone, and all interpreters that it has forked with it."""
        unreaped = [self.unreaped.pop(key) for key in [*self.unreaped] if key[0] is slot]
        for session in [
            *unreaped,
            *(session for session in self.open.values() if session.slot is slot),
        ]:
            if session.block is not None:
                self.answer(session.block.request.number, "infra", "", why)
            self._leave(session)
            self.open.pop(session.number, None)
            kill(session.leaf.pidfd)
            session.close()

    def keep_time(self, now: float) -> None:
        """End those whose time is up; write what a leaf has not read yet."""
        for session in [*self.running.values()]:
            session.wire.flush()
            if why := session.overdue(now):
                self._end(session, stopped=why)

    def patience(self, now: float) -> float:
        """Seconds until the next thing that time alone brings about."""
        blocks = [session.block for session in self.running.values() if session.block]
        if any(session.wire.pending for session in self.running.values()):
            return 0.001
        return min([min(block.deadline, block.next_look) - now for block in blocks], default=5.0)
