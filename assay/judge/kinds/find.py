"""Finds the kind of a check: each file of this folder, or of a plug-in, may have some."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from assay.checks import AnyCheck
from assay.judge.kinds.kind import KINDS, Kind

for file in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    import_module(f"assay.judge.kinds.{file.stem}")


def kind_of(check: AnyCheck) -> Kind[Any]:
    """The kind of a check."""
    return KINDS[type(check)]
