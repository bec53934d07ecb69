"""Remembers verdicts, so that a program is not run twice on the same task."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

from assay.bounded import size_of
from assay.judge.shared_work import SharedWork
from assay.judge.verdict_archive import Archive
from assay.types import Execution, Verdict

CACHED = 20_000
PRINTED_CHARACTERS = 4096
"""An execution that printed more is not cached, so that CACHED of them fit into memory."""
NOT_LASTING = (Verdict.INFRA, Verdict.UNJUDGED, Verdict.TIMEOUT, Verdict.MEMORY)
"""Verdicts that may depend on the machine's state; they are not cached."""
EMPTY_BYTES = size_of(Execution(Verdict.PASS))


def size_of_execution(execution: Execution) -> int:
    """About how many bytes an execution takes. Each program has one, so no field is walked that
    always takes the same.
    """
    texts = execution.detail, execution.output, execution.stderr
    return EMPTY_BYTES + sum(map(sys.getsizeof, texts)) + sum(map(size_of, execution.tests))


async def always(execution: Execution) -> bool:
    """True."""
    return True


class VerdictCache(SharedWork[bytes, Execution]):
    """The last CACHED executions by key, and all of them in `archive`."""

    archive: Archive | None = None
    keeps = ()  # an error may be of the moment: a tool that does not answer

    def __init__(self, most: int, most_mb: float) -> None:
        super().__init__(most, most_mb, size_of_execution)

    async def get_or_run(
        self,
        key: bytes,
        judge: Callable[[], Awaitable[Execution]],
        lasts: Callable[[Execution], Awaitable[bool]] = always,
    ) -> Execution:
        """The execution of `key`, from `judge` where it is not cached. It is cached if it `lasts`,
        too; what `judge` raises is not.
        """

        async def run() -> Execution:
            stored = self.archive.get(key) if self.archive else None
            execution = stored or await judge()
            lasting = stored or (execution.verdict not in NOT_LASTING and await lasts(execution))
            if self.archive and lasting and not stored:
                self.archive.put(key, execution)
            if not lasting or len(execution.output) + len(execution.stderr) > PRINTED_CHARACTERS:
                self.pop(key, None)
            return execution

        return await self.get_or_make(key, run)
