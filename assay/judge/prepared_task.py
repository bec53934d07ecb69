"""A task's side of its jobs, made once: a group of rollouts shares it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, astuple
from functools import cached_property
from importlib.util import find_spec
from typing import Any

from assay.errors import DataError
from assay.judge.expected import fields_of
from assay.judge.proxy_features import ProxyFeatures
from assay.judge.wire_job import WireJob
from assay.sandbox.limits import Limits
from assay.types import Check, Exchange, Task

NUMERIC = re.compile(r"^\s*(?:import|from)\s+(?:numpy|scipy|pandas)\b", re.MULTILINE)
USUAL = "lines"
HAS_NUMPY = find_spec("numpy") is not None


class PreparedTask:
    """What every job of one task has in common, as it is judged with given limits.

    Raises DataError for exchanges beside other checks.
    """

    def __init__(self, task: Task, limits: Limits, stop_early: bool) -> None:
        self._task, self._limits, self._stop_early = task, limits, stop_early
        self.exchanges = tuple(check for check in task.checks if isinstance(check, Exchange))
        """Of a task whose programs read and print; else empty."""
        if 0 < len(self.exchanges) < len(task.checks):
            raise DataError(
                f"task {task.id!r} has exchanges beside other checks; make two tasks of it"
            )
        sources = [check.source for check in task.checks if isinstance(check, Check)]
        self.movable = not sources
        """Whether the tests may be made in any order: checks may build on each other."""
        self._numeric = any(map(NUMERIC.search, [task.setup, *sources]))
        tests = [[type(check).__name__, *astuple(check)] for check in task.checks]
        known = [
            tests,
            task.setup,
            task.entry_point,
            task.checker,
            task.reference,
            stop_early,
            asdict(limits),
        ]
        self.digest = hashlib.blake2b(json.dumps(known).encode(), digest_size=32).digest()
        """Tells the task from every other, judged by whatever rules."""

    def key(self, program: str) -> bytes:
        """What a verdict is remembered by."""
        return hashlib.blake2b(
            program.encode("utf-8", "surrogatepass"), key=self.digest, digest_size=32
        ).digest()

    def order(self, program: str, profile: ProxyFeatures, order: Sequence[int] = ()) -> WireJob:
        """The job of judging a function by its tests in the given order, or as they stand. Raises
        CodecError.
        """
        own = {
            "program": program,
            "mutates": profile.mutates,
            "handles": profile.handles,
            "callbacks": profile.callbacks,
            "order": order or list(range(len(self._task.checks))),
        }
        return self._order(own, profile)

    def exchange(
        self, program: str, profile: ProxyFeatures, stdin: str, expected: str | None
    ) -> WireJob:
        """The job of one exchange; whatever is printed is right where `expected` is None."""
        own = {"program": program, "expected": expected}
        return self._order(own, profile, stdin.encode("utf-8", "surrogateescape"))

    @cached_property
    def _fields(self) -> str:
        """The inside of a JSON object, for the worker."""
        task, limits = self._task, self._limits
        fields: dict[str, Any] = {"reply_mb": limits.reply_mb}
        if self.exchanges:
            fields |= {"printed_mb": limits.printed_mb, "output_kb": limits.output_kb}
            fields |= {"checker": task.checker or USUAL}
        else:
            fields |= {
                "entry_point": task.entry_point,
                "setup": task.setup,
                "checker": task.checker,
            }
            fields |= {"stop_early": self._stop_early}
            fields |= {
                "checks": [
                    fields_of(check) for check in task.checks if not isinstance(check, Exchange)
                ]
            }
        return json.dumps(fields)[1:]

    def _order(
        self, own: dict[str, Any], profile: ProxyFeatures, stdin: bytes | None = None
    ) -> WireJob:
        numeric = HAS_NUMPY and (self._numeric or NUMERIC.search(str(own["program"])) is not None)
        payload = f"{json.dumps(own)[:-1]},{self._fields}".encode()
        return WireJob(payload, profile.time_factor, "numpy" if numeric else "plain", stdin)
