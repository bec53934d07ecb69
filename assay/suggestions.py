"""Offers the name that a mistyped one means: a "did you mean"."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def suggest(name: str, choices: Iterable[str]) -> str:
    """A clause that offers the nearest known name, or lists them all: `did you mean 'grpo'?`.

    A name one edit away comes first, then one whose beginning is, then a similar one.
    """
    names = sorted(set(choices))
    close = _nearest(name, names)
    return f"did you mean {close!r}?" if close else f"known: {', '.join(names)}".strip()


def is_like(name: str, choices: Iterable[str]) -> bool:
    """Whether `suggest` offers one of the names."""
    return bool(_nearest(name, sorted(set(choices))))


def _nearest(name: str, names: Sequence[str]) -> str:
    """The name that a mistyped one means; empty where none is near."""
    name = name[: 2 * max(map(len, names), default=0)]  # a client's may have a million letters
    near = [word for word in names if is_one_edit(name, word)] or [
        word for word in names if len(name) > 2 and is_one_edit(name, word[: len(name) + 1])
    ]
    return next(iter(get_close_matches(name, near or names, n=1, cutoff=0 if near else 0.6)), "")


def is_one_edit(first: str, second: str) -> bool:
    """Whether `second` is `first` with one letter inserted, deleted or replaced, or with two
    neighbours swapped.
    """
    shorter = min(len(first), len(second))
    start = next((n for n in range(shorter) if first[n] != second[n]), shorter)
    tail, other = first[start:], second[start:]
    swapped = tail[:2] == other[1::-1] and tail[2:] == other[2:]
    return first != second and (swapped or tail[1:] in (other, other[1:]) or tail == other[1:])
