"""What the judge knows already: verdicts that running a program again would only repeat."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeVar

from assay.judge.archive import Archive
from assay.types import Execution, Verdict

K = TypeVar("K")
V = TypeVar("V")
KEPT = 20_000
SHORT = 4096
"""Characters that a remembered program may have printed, so that KEPT of them fit into memory."""
OF_THE_MOMENT = (Verdict.INFRA, Verdict.TIMEOUT, Verdict.MEMORY)
"""Verdicts that may be the machine's state: nothing lasting is concluded from them."""


class BoundedDict(OrderedDict[K, V]):
    """A dict that forgets what was put in first once it holds more than `most`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > self._most:
            self.popitem(last=False)


class VerdictCache:
    """The last KEPT executions by key, and all in `archive`; what is being judged is judged once
    for all who ask.
    """

    def __init__(self, archive: Archive | None = None) -> None:
        self.archive = archive
        self._known: BoundedDict[bytes, Execution] = BoundedDict(KEPT)
        self._under_way: dict[bytes, asyncio.Task[Execution]] = {}
        self._asking: dict[bytes, int] = {}

    async def get_or_run(self, key: bytes, judge: Callable[[], Awaitable[Execution]]) -> Execution:
        """The execution of `key`, from `judge` where it is not known. What nobody waits for any
        more is cancelled.
        """
        if (known := self._recalled(key)) is not None:
            return known
        if key not in self._under_way:
            self._under_way[key] = asyncio.ensure_future(judge())
        task = self._under_way[key]
        self._asking[key] = self._asking.get(key, 0) + 1
        try:
            execution = await asyncio.shield(task)
        finally:
            self._asking[key] -= 1
            if not self._asking[key]:
                del self._asking[key], self._under_way[key]
                task.cancel()
        self._keep(key, execution)
        return execution

    def _recalled(self, key: bytes) -> Execution | None:
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        found = self.archive.get(key) if self.archive else None
        if found is not None:
            self._remember(key, found)
        return found

    def _remember(self, key: bytes, execution: Execution) -> None:
        if len(execution.output) + len(execution.stderr) <= SHORT:
            self._known[key] = execution

    def _keep(self, key: bytes, execution: Execution) -> None:
        if execution.verdict not in OF_THE_MOMENT and key not in self._known:
            self._remember(key, execution)
            if self.archive:
                self.archive.put(key, execution)
