"""Interpreters as the supervisor holds them: each has a process that keeps its state and is stopped
between blocks of code.

The supervisor looks at one byte of what a process says. It keeps the head and tail of what the
process prints, and never interprets them.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from assay.sandbox.ending import RunRecord, ending
from assay.sandbox.job_queue import QueuedJob
from assay.sandbox.kernel import MIB, read_text
from assay.sandbox.limits import LONGEST
from assay.sandbox.processes import CandidateProcess, Events, TimeLimit, pid_of, starved_seconds
from assay.sandbox.program import SESSION, BlockResult, Ended
from assay.sandbox.repl import DONE, RAISED
from assay.sandbox.slot import SESSION_MB, SESSION_THREADS, SESSIONS, Slot, is_alive
from assay.sandbox.sockets import BufferedSocket
from assay.sandbox.zygote import MESSAGE, ProcessEnd

OUTPUT_BYTES = 4096
"""Bytes of a block's output that are kept of its head, and of its tail."""
ENDS = {DONE: "done", RAISED: "error"}
LOST = {
    Ended.CPU: "timeout", Ended.WALL: "timeout", Ended.MEMORY: "memory", Ended.PRINTED: "output",
    Ended.LOST: "infra",
}  # fmt: skip
"""What is said of an interpreter by how it ended; any other is `died`."""
DESCRIPTORS = 4
"""One in so many of the supervisor's descriptors is for interpreters, which take three each."""


@dataclass(slots=True)
class Block:
    """One block of code, from the job until the result."""

    job: QueuedJob
    session: int
    """The number of the job that opened its interpreter; 0 where it is to open one."""
    code: bytes
    record: RunRecord = field(default_factory=lambda: RunRecord(companion=False))
    failure: tuple[str, str] | None = None
    """What it did wrong, where that ends the interpreter."""
    head: bytearray = field(default_factory=bytearray)
    tail: bytes = b""
    printed: int = 0

    def read(self, source: int) -> bool:
        """Read what was printed. False where there is nothing more, now or ever."""
        try:
            chunk = os.read(source, MESSAGE)
        except BlockingIOError:
            return False
        space = OUTPUT_BYTES - len(self.head)
        self.head += chunk[:space]
        self.tail = (self.tail + chunk[space:])[-OUTPUT_BYTES:]
        self.printed += len(chunk)
        return bool(chunk)

    @property
    def output(self) -> str:
        """What is kept of the output; it may be any bytes."""
        left_out = self.printed - len(self.head) - len(self.tail)
        between = f"\n[... {left_out} bytes left out ...]\n".encode() if left_out else b""
        return (bytes(self.head) + between + self.tail).decode("utf-8", "replace")


@dataclass(slots=True, eq=False)
class Session:
    """One interpreter. `block` is what runs in it; without one it is stopped."""

    number: int
    slot: Slot
    candidate: CandidateProcess
    sock: BufferedSocket
    time_limit: TimeLimit | None = None
    """Of the block."""
    block: Block | None = None

    def begin(self, block: Block) -> None:
        """Let it run a block, within the time of the block and of all blocks together."""
        limits, candidate = block.job.limits, self.candidate
        left = min(limits.cpu_seconds, LONGEST * limits.cpu_seconds - candidate.spent)
        starved = starved_seconds(pid_of(candidate.pidfd))
        self.time_limit = TimeLimit(candidate, left, limits.wall_seconds, starved)
        self.block = block
        candidate.kill(signal.SIGCONT)
        self.sock.send(block.code)

    def exceeded(self, now: float) -> Ended | None:
        """Why to end it, if it is to end: LOST where someone else stopped it."""
        exceeded = self.time_limit.exceeded(now) if self.block and self.time_limit else None
        frozen = exceeded is Ended.WALL and self.candidate.is_frozen()
        return Ended.LOST if frozen else exceeded

    def stop(self, block: Block) -> bool:
        """Stop it after a block. False where it holds more than it may keep, or has ended."""
        self.candidate.spent += self.candidate.cpu_seconds
        self.candidate.kill(signal.SIGSTOP)
        while block.read(self.candidate.printed):
            pass
        text = read_text(f"/proc/{pid_of(self.candidate.pidfd)}/status")
        lines = map(str.split, text.splitlines())
        status = {line[0]: line[1] for line in lines if len(line) > 1}
        if "RssAnon:" not in status:
            return False  # it ended after it had said that its block did
        if sum(int(status[name]) for name in ("RssAnon:", "VmPTE:")) > SESSION_MB * 1024:
            block.failure = "memory", f"held more than {SESSION_MB} MiB when the code had ended"
        elif int(status["Threads:"]) > 1 + SESSION_THREADS:
            block.failure = "died", f"left more than {SESSION_THREADS} threads running"
        if block.failure is None:
            self.block = None
        return block.failure is None

    def close(self) -> None:
        """Close every descriptor."""
        self.sock.stream.detach()  # it is the candidate's
        self.candidate.close()


class Sessions:
    """All interpreters. `descriptors`: how many the supervisor may have open."""

    def __init__(self, events: Events, send_result: Callable[..., None], descriptors: int) -> None:
        self.events = events
        self.send_result = send_result
        self.most = min(SESSIONS, descriptors // DESCRIPTORS)
        self.waiting: dict[int, Block] = {}
        self.open: dict[int, Session] = {}
        self.running: dict[Slot, Session] = {}
        self.unreaped: dict[tuple[Slot, int], Session] = {}

    def add(self, job: QueuedJob) -> None:
        """Queue code for an interpreter."""
        payload = job.program.payload
        (session,) = SESSION.unpack_from(payload)
        self.waiting[job.number] = Block(job, session, payload[SESSION.size :])

    def assign(self, slots: Sequence[Slot]) -> None:
        """Start what waits: one block in a slot at a time, beside the job that runs there."""
        free = [slot for slot in slots if slot not in self.running]
        for number, block in [*self.waiting.items()] if free else []:
            session = self.open.get(block.session) if block.session else self._open(number, free)
            if session is not None and session.slot in free:
                del self.waiting[number]
                free.remove(session.slot)
                self.running[session.slot] = session
                session.begin(block)
                self._watch(session)
            elif session is None and block.session:
                del self.waiting[number]
                self._answer(block, "infra", "the interpreter is gone")

    def on_reaped(self, slot: Slot, end: ProcessEnd) -> None:
        """A process of a slot is reaped. If it was an interpreter, answer its last block."""
        session = self.unreaped.pop((slot, end.pid), None)
        block = session.block if session else None
        if session and block:
            while block.read(session.candidate.printed):
                pass
            slot.complete(block.record, end, session.candidate.spent)
            ended, detail = ending(block.record, block.job.limits)
            limited = ended in LOST and ended is not Ended.LOST
            said = (LOST.get(ended, "died"), detail)
            self._answer(block, *(said if limited else block.failure or said))
        if session:
            session.close()

    def cancel(self, number: int) -> None:
        """Drop a block that waits, or the interpreter with this number and what runs in it."""
        self.waiting.pop(number, None)
        if session := self.open.get(number):
            session.block = None
            self._end(session)

    def drop_slot(self, slot: Slot, why: str) -> None:
        """A slot's zygote is gone, and with it all its interpreters."""
        ending = [self.unreaped.pop(key) for key in [*self.unreaped] if key[0] is slot]
        for session in [*ending, *(one for one in self.open.values() if one.slot is slot)]:
            if session.block is not None:
                self._answer(session.block, "infra", why)
            self._unwatch(session)
            self.open.pop(session.number, None)
            session.candidate.kill()
            session.close()

    def check_time(self, now: float) -> None:
        """End interpreters whose time is up; write what a process has not read yet."""
        for session in [*self.running.values()]:
            session.sock.flush()
            if why := session.exceeded(now):
                self._end(session, why)

    def timeout(self, now: float) -> float:
        """Seconds until the next deadline."""
        if any(session.sock.pending for session in self.running.values()):
            return 0.001
        limits = [session.time_limit for session in self.running.values() if session.block]
        return min([limit.due - now for limit in limits if limit], default=5.0)

    def _open(self, number: int, free: Sequence[Slot]) -> Session | None:
        """A new interpreter in the slot that has the fewest; None where there is no room."""
        ready = [slot for slot in free if slot.candidates]
        if not ready or len(self.open) + len(self.unreaped) >= self.most:
            return None
        slots = [session.slot for session in self.open.values()]
        slot = min(ready, key=slots.count)
        candidate = slot.take_candidate()
        sock = BufferedSocket(socket.socket(fileno=candidate.sock))
        self.open[number] = Session(number, slot, candidate, sock)
        return self.open[number]

    def _watch(self, session: Session) -> None:
        self.events.watch(session.sock.stream, lambda: self._on_end_of_block(session))
        self.events.watch(session.candidate.printed, lambda: self._on_output(session))

    def _unwatch(self, session: Session) -> None:
        """Watch it no longer, and let others run in its slot."""
        self.events.unwatch(session.sock.stream, session.candidate.printed)
        if self.running.get(session.slot) is session:
            del self.running[session.slot]

    def _on_output(self, session: Session) -> None:
        block = session.block
        if block is None or not block.read(session.candidate.printed):
            self.events.unwatch(session.candidate.printed)
        elif block.printed > block.job.limits.printed_mb * MIB:
            self._end(session, Ended.PRINTED)

    def _on_end_of_block(self, session: Session) -> None:
        """The byte that ends a block; another byte, or its silence, ends the interpreter."""
        try:
            mark = session.sock.stream.recv(MESSAGE)
        except OSError:
            mark = b""
        block = session.block
        if block is None or mark not in ENDS:
            if block is not None and mark:
                block.failure = "died", "wrote to the interpreter's own channel"
            self._end(session)
        elif not session.stop(block):
            self._end(session)
        else:
            self._unwatch(session)
            self._answer(block, ENDS[mark], "")

    def _end(self, session: Session, stopped: Ended | None = None) -> None:
        """Kill an interpreter; its block is answered when it is reaped."""
        self._unwatch(session)
        del self.open[session.number]
        if session.block is not None:
            record = session.block.record
            record.stopped = stopped
            record.alive = is_alive(session.candidate, record)
        session.candidate.kill()
        self.unreaped[session.slot, session.candidate.pid] = session
        session.slot.zygote.send(["reap", [session.candidate.pid]])

    def _answer(self, block: Block, ended: str, detail: str) -> None:
        self.send_result(block.job.number, *BlockResult(ended, block.output, detail))
