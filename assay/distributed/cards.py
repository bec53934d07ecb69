"""The GPUs that `assay plan --gpus` knows: their memory and speed, from the makers' data sheets."""

import re
from dataclasses import dataclass

from assay.errors import SettingsError
from assay.suggestions import suggest

GB = 10**9
RESERVE = 2 * GB
"""What CUDA, NCCL and the allocator's gaps take of a GPU beside tensors: a rule of thumb."""
PER_MACHINE = 8
"""GPUs of one machine; more are on several machines."""
MOST_GPUS = 4096
"""The largest count that is planned for."""


@dataclass(frozen=True, slots=True)
class Card:
    """One kind of GPU."""

    name: str
    memory_gb: int
    teraflops: int
    """Dense matrix products in bfloat16."""

    @property
    def room(self) -> int:
        """Bytes for tensors."""
        return self.memory_gb * GB - RESERVE


@dataclass(frozen=True, slots=True)
class Gpus:
    """So many GPUs of one kind."""

    count: int
    card: Card

    def __str__(self) -> str:
        return f"{self.count}x{self.card.name}"


CARDS = {
    card.name: card
    for card in (
        Card("A100-40", 40, 312),
        Card("A100-80", 80, 312),
        Card("H100", 80, 989),
        Card("H200", 141, 989),
        Card("L40S", 48, 362),
    )
}


def parse_gpus(text: str) -> Gpus:
    """GPUs such as `8xH100`. Raises SettingsError for another text, or a card that is not known."""
    match = re.fullmatch(r"0*([1-9][0-9]*)x(.+)", text)
    if not match:
        raise SettingsError(f"--gpus {text!r} is not like 8xH100: a number, x, and the card's name")
    count, word = match[1], match[2].lower()
    if len(count) > len(str(MOST_GPUS)) or int(count) > MOST_GPUS:
        raise SettingsError(f"--gpus {text!r}: at most {MOST_GPUS:,} GPUs are planned for")
    names = {name.lower(): name for name in CARDS}
    if word not in names:
        matches = [repr(name) for lower, name in names.items() if lower.startswith(word)]
        offer = f"did you mean {' or '.join(matches)}?" if matches else suggest(match[2], CARDS)
        raise SettingsError(f"--gpus {text!r}: unknown card {match[2]!r}; {offer}")
    return Gpus(int(count), CARDS[names[word]])


def in_gb(count: int) -> str:
    """`15.2 GB`, in units of 10^9 bytes, as makers count."""
    return f"{count / GB:.1f} GB"
