"""Modules of ours as one text, which runs where nothing of assay is installed."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

PROGRAM = """
import sys
from types import ModuleType
for name, text in {texts!r}.items():
    sys.modules[name] = module = ModuleType(name)
    exec(text, vars(module))
exec({main!r})
"""


def standalone(main: ModuleType, *imported: ModuleType) -> str:
    """A program that runs a module, which imports nothing of ours but `imported`, in this order."""
    texts = {module.__name__: text_of(module) for module in imported}
    return PROGRAM.format(texts=texts, main=text_of(main))


def text_of(module: ModuleType) -> str:
    """The source of a module."""
    return Path(str(module.__file__)).read_text(encoding="utf-8")
