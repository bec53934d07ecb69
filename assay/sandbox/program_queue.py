"""The programs that wait for a slot, and whose is next."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from itertools import islice

from assay.sandbox.program import Ended, Pool
from assay.sandbox.slot import QueuedProgram

LOOKED_AT = 64
"""Programs of a client among which one is sought that can start in a slot."""


class ProgramQueue:
    """Waiting programs by number. Next is a program of the client that has used least; those of
    one client start in the order in which they came.

    used: what a client has used, in seconds.
    """

    def __init__(self, used: Callable[[str], float]) -> None:
        self._used = used
        self._waiting: defaultdict[Pool, dict[str, OrderedDict[int, QueuedProgram]]] = defaultdict(
            dict
        )
        """By pool, client and number. No client's are empty."""

    def add(self, queued: QueuedProgram) -> None:
        """Append a new program."""
        clients = self._waiting[queued.program.pool]
        clients.setdefault(queued.client, OrderedDict())[queued.number] = queued

    def waiting(self, pool: Pool) -> int:
        """How many programs wait for this pool."""
        return sum(map(len, self._waiting[pool].values()))

    def cancel(self, number: int) -> None:
        """Drop a program if it waits here."""
        for clients in self._waiting.values():
            for programs in clients.values():
                if queued := programs.get(number):
                    self._remove(queued)
                    return

    def take(self, pool: Pool, can_run: Callable[[QueuedProgram], bool]) -> QueuedProgram | None:
        """Remove and return the next program for this pool that `can_run` accepts, of the first few
        of each client: one may have thousands.
        """
        clients = self._waiting[pool]
        # most often there is one, and what it has used takes long to find out
        for client in sorted(clients, key=self._used) if len(clients) > 1 else [*clients]:
            first = islice(clients[client].values(), LOOKED_AT)
            if queued := next(filter(can_run, first), None):
                self._remove(queued)
                return queued
        return None

    def least_used(self, pool: Pool) -> float:
        """What the client whose program is next for this pool has used; infinite for none."""
        return min(map(self._used, self._waiting[pool]), default=float("inf"))

    def first_of_each(self) -> Iterator[QueuedProgram]:
        """The program of each client and pool that has waited longest."""
        for clients in self._waiting.values():
            yield from (next(iter(programs.values())) for programs in clients.values())

    def retry(self, queued: QueuedProgram, slot: object, failure: Ended) -> bool:
        """Put a program first that the machine failed in `slot`, unless it is cancelled. False
        where it has failed it before.
        """
        if queued.failure or queued.program.session is not None:
            return False
        queued.avoid, queued.failure = slot, failure
        self.put_back(queued)
        return True

    def put_back(self, queued: QueuedProgram) -> None:
        """Put a program before the others of its client, unless it is cancelled."""
        if not queued.cancelled:
            self.add(queued)
            programs = self._waiting[queued.program.pool][queued.client]
            programs.move_to_end(queued.number, last=False)

    def _remove(self, queued: QueuedProgram) -> None:
        clients = self._waiting[queued.program.pool]
        del clients[queued.client][queued.number]
        if not clients[queued.client]:
            del clients[queued.client]
