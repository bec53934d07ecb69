"""The errors that assay raises on purpose, by whose fault they are.

AssayError
├── UserError            the user's: one line says what, where and what to do; exit code 2
│   ├── SettingsError    an unknown or impossible setting
│   ├── DataError        a missing file, a malformed row, a task without tests
│   │   └── NotInstalledError  a tool that a task's programs or tests need
│   ├── ModelError       a model directory that cannot be used
│   └── UnhealthyError   training gives a warning that `stop_if` names
└── MachineError         the machine's: retried, then dropped and counted, never scored 0; exit 3
    ├── SandboxError     the judge cannot be started or kept alive
    ├── RolloutLostError one rollout is lost; the others go on
    └── TrainingError    the loss or a gradient is not a finite number
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.types import Batch, Cause


class AssayError(Exception):
    """Base of every error that assay raises on purpose."""


class UserError(AssayError):
    """An error that the user can fix. The message says what is wrong, where, and what to do."""


class SettingsError(UserError):
    """A setting is unknown, has the wrong type, or conflicts with another.

    `place` is the path of keys to it, where a settings file gave it: ("optimizer", "lr").
    """

    def __init__(self, message: str, place: tuple[str, ...] | None = None) -> None:
        super().__init__(message)
        self.place = place


class DataError(UserError):
    """A file, a row or a task cannot be used as it is."""


class NotInstalledError(DataError):
    """A tool that a task's programs or tests need is not installed."""


class ModelError(UserError):
    """A model or tokenizer cannot be loaded."""


class UnhealthyError(UserError):
    """Training gives a warning that the settings say to stop at."""


class MachineError(AssayError):
    """The machine failed, not the user and not the model."""


class SandboxError(MachineError):
    """The judge's processes could not be started, or died too often."""


class RolloutLostError(MachineError):
    """One rollout is lost. It is dropped and counted, and training continues.

    `cause` says whose doing it is, if not the machine's: its task cannot be judged.
    """

    def __init__(self, message: str = "", cause: Cause | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class TrainingError(MachineError):
    """The loss or a gradient is not finite, so training stops. `batches` are those of this step."""

    def __init__(self, message: str, batches: Sequence[Batch] = ()) -> None:
        super().__init__(message)
        self.batches = batches
