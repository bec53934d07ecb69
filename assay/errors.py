"""Every error that assay raises on purpose, by whose fault it is.

AssayError ├── UserError            the user's: one line says what, where and what to do; exit code
2 │   ├── SettingsError    an unknown or impossible setting │   ├── DataError        a missing file,
a malformed row, a task without tests │   └── ModelError       a model directory that cannot be used
└── MachineError         the machine's: retried, then dropped and counted, never scored 0; exit code
3
    ├── SandboxError     the judge could not be started or kept alive
    ├── RolloutLostError one rollout cannot be finished; the others go on
    └── TrainingError    a loss or gradient that is not a number
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.types import Batch


class AssayError(Exception):
    """Base of every error that assay raises on purpose."""


class UserError(AssayError):
    """The user can mend this: the message says what is wrong, where, and what to do."""


class SettingsError(UserError):
    """A setting is unknown, of the wrong type, or at odds with another."""


class DataError(UserError):
    """A file, a row or a task cannot be used as given."""


class ModelError(UserError):
    """A model or tokenizer cannot be loaded as given."""


class MachineError(AssayError):
    """The machine failed, not the user and not the model."""


class SandboxError(MachineError):
    """The judge's processes could not be started, or died more often than is tolerable."""


class RolloutLostError(MachineError):
    """The machine failed one rollout, which is dropped and counted; nothing else ends."""


class TrainingError(MachineError):
    """Training cannot go on: the loss or a gradient is not finite. `batches` is what was being
    learned from.
    """

    def __init__(self, message: str, batches: Sequence[Batch] = ()) -> None:
        super().__init__(message)
        self.batches = batches
