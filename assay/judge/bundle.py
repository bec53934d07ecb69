"""A task's side of its jobs, made once: a group of rollouts shares it."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from assay.judge.archive import edition
from assay.judge.orders import Order
from assay.judge.profiles import Profile
from assay.sandbox.limits import Limits
from assay.types import Check, Exchange, Task

NUMERIC = re.compile(r"^\s*(?:import|from)\s+(?:numpy|scipy|pandas)\b", re.MULTILINE)
HAS_NUMPY = find_spec("numpy") is not None


@dataclass(frozen=True, slots=True)
class Bundle:
    """What every job of one task has in common."""

    fields: str
    """The inside of a JSON object, for the worker."""
    exchanges: tuple[Exchange, ...]
    """Of a task whose programs read and print; else empty."""
    numeric: bool
    """Whether its tests use numpy."""
    digest: bytes
    """Tells it from every other task, judged by whatever rules."""

    def key(self, program: str) -> bytes:
        """What a verdict is remembered by."""
        return hashlib.blake2b(program.encode("utf-8", "surrogatepass"), key=self.digest, digest_size=32).digest()

    def order(self, program: str, profile: Profile) -> Order:
        """The job of judging a function."""
        own = {"program": program, "mutates": profile.mutates, "handles": profile.handles}
        return self._order(own, profile)

    def exchange(self, program: str, profile: Profile, stdin: str, expected: str | None) -> Order:
        """The job of one exchange; whatever is printed is right where `expected` is None."""
        return self._order(
            {"program": program, "expected": expected}, profile, stdin.encode("utf-8", "surrogateescape")
        )

    def _order(self, own: dict[str, Any], profile: Profile, stdin: bytes | None = None) -> Order:
        numeric = HAS_NUMPY and (self.numeric or NUMERIC.search(str(own["program"])) is not None)
        payload = f"{json.dumps(own)[:-1]},{self.fields}".encode()
        return Order(payload, profile.stretch, "numpy" if numeric else "plain", stdin)


def bundle_of(task: Task, limits: Limits, stop_early: bool) -> Bundle:
    """The bundle of `task` as it is judged with these limits."""
    exchanges = tuple(check for check in task.checks if isinstance(check, Exchange))
    sources = [check.source for check in task.checks if isinstance(check, Check)]
    fields: dict[str, Any] = {"reply_mb": limits.reply_mb, "checker": task.checker or "lines"}
    if exchanges:
        fields |= {"printed_mb": limits.printed_mb, "output_kb": limits.output_kb}
    else:
        fields |= {"entry_point": task.entry_point, "setup": task.setup, "checks": sources, "stop_early": stop_early}
    known = [fields, task.reference, asdict(limits), stop_early, [asdict(exchange) for exchange in exchanges]]
    return Bundle(
        fields=json.dumps(fields)[1:],
        exchanges=exchanges,
        numeric=any(map(NUMERIC.search, [task.setup, *sources])),
        digest=hashlib.blake2b(json.dumps(known).encode(), key=edition(), digest_size=32).digest(),
    )
