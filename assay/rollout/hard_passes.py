"""Passing rollouts of hard tasks, kept to be learned from again: few, and not for long."""

from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.bounded import MIB
from assay.types import TYPE_CODES, Sample

MOST, MOST_BYTES = 512, 16 * MIB
"""Rollouts that are kept, and bytes of their arrays. In a checkpoint they take a third more."""
ARRAYS = ("tokens", "mask", "logprobs", "advantages")
NUMBERS = ("reward", "passed", "truncated", "limit", "rollout", "version")
"""What is kept of a sample. The learner computes the rest again with the weights of its step."""


@dataclass(frozen=True, slots=True)
class HardPass:
    """A rollout that passed, as it was learned from."""

    task: str
    """The id of its task."""
    samples: tuple[Sample, ...]
    """All that was learned from the rollout, with its advantages."""
    replays: int = 0
    """Steps that learned from it again."""

    @property
    def version(self) -> int:
        """The oldest weight version that sampled one of its tokens."""
        return min(sample.version for sample in self.samples)

    @property
    def tokens(self) -> int:
        """Tokens that are learned from it."""
        return sum(sample.trained_tokens for sample in self.samples)

    @property
    def bytes(self) -> int:
        """What its arrays take."""
        arrays = (getattr(sample, name) for sample in self.samples for name in ARRAYS)
        return sum(len(values) * values.itemsize for values in arrays)


@dataclass(slots=True)
class HardPasses:
    """The newest `keep` passes of each task, at most MOST and MOST_BYTES in all.

    The key is the id of the task. An older pass goes for a newer one, of its task or, beyond the
    bounds, of any. `forget` clears the others; the store itself ends with its stage.
    """

    keep: int
    stored: list[HardPass] = field(default_factory=list)
    """In the order in which they were stored."""

    def store(self, task: str, samples: Sequence[Sample]) -> None:
        """Keep a rollout. One that was no better than its baseline, or that is larger than the
        bound, is left out.
        """
        if sum(sum(sample.advantages) for sample in samples) <= 0:
            return
        plain: dict[str, Any] = {name: () for name in TYPE_CODES if name not in ARRAYS}
        samples = tuple(
            replace(sample, **plain, observed_weight=0.0, place=None) for sample in samples
        )
        if (new := HardPass(task, samples)).bytes > MOST_BYTES:
            return
        self.stored.append(new)
        of_task = [each for each in self.stored if each.task == task]
        self._drop(of_task[: -self.keep])
        while len(self.stored) > MOST or sum(each.bytes for each in self.stored) > MOST_BYTES:
            self._drop(self.stored[:1])

    def forget(self, version: int, is_hard: Callable[[str], bool]) -> None:
        """Keep only those whose tokens are all from `version` or later, of tasks that are hard."""
        self._drop([p for p in self.stored if p.version < version or not is_hard(p.task)])

    def take(self, fresh_tokens: int, share: float) -> list[HardPass]:
        """Those to learn from again beside so many fresh tokens: at most `share` of all tokens are
        theirs. Those come first that had the fewest replays, then the oldest; one that does not fit
        is passed over.
        """
        passes: list[HardPass] = []
        tokens = 0
        for each in sorted(self.stored, key=lambda each: each.replays):
            more = tokens + each.tokens
            if more <= share * (fresh_tokens + more):
                passes.append(each)
                tokens = more
        used = {id(each) for each in passes}
        self.stored = [
            replace(each, replays=each.replays + 1) if id(each) in used else each
            for each in self.stored
        ]
        return passes

    def _drop(self, passes: Sequence[HardPass]) -> None:
        dropped = {id(each) for each in passes}
        self.stored = [each for each in self.stored if id(each) not in dropped]

    @property
    def position(self) -> list[dict[str, Any]]:
        """What a resumed run needs to replay the same, as JSON types. Nothing of it changes
        later.
        """
        return [
            {"task": p.task, "replays": p.replays, "samples": [_packed(s) for s in p.samples]}
            for p in self.stored
        ]

    def resume(self, position: Sequence[Mapping[str, Any]]) -> None:
        """Continue from a `position`."""
        self.stored = [
            HardPass(row["task"], tuple(map(_unpacked, row["samples"])), row["replays"])
            for row in position
        ]


def as_replayed(passes: Sequence[HardPass]) -> list[Sample]:
    """Their samples for a step, each rollout as a group of its own."""
    return [
        replace(sample, replayed=True, group=f"replay {number}/{each.task}")
        for number, each in enumerate(passes)
        for sample in each.samples
    ]


def _packed(sample: Sample) -> dict[str, Any]:
    """A sample in JSON types, exact to the bit."""
    numbers = {name: getattr(sample, name) for name in NUMBERS}
    arrays = {name: array(TYPE_CODES[name], getattr(sample, name)) for name in ARRAYS}
    return numbers | {n: b64encode(values.tobytes()).decode() for n, values in arrays.items()}


def _unpacked(packed: Mapping[str, Any]) -> Sample:
    arrays: dict[str, Any] = {
        name: array(TYPE_CODES[name], b64decode(packed[name])) for name in ARRAYS
    }
    return Sample(**{name: packed[name] for name in NUMBERS}, **arrays)
