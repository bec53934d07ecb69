"""Python, run by assay's own interpreter: in a warm process, or in a folder."""

from __future__ import annotations

import os
import sys

from assay.languages import DRIVERS, Language, language

START = DRIVERS / "python_start.py"
PACKAGES = [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]

STRINGS = (
    r"\"{3}(?:\\.|\\\Z|[^\\])*?(?:\"{3}|\Z)|'{3}(?:\\.|\\\Z|[^\\])*?(?:'{3}|\Z)"
    r"|\"(?:\\.|\\\Z|[^\"\\\n])*\"?|'(?:\\.|\\\Z|[^'\\\n])*'?"
)


language("python", Language(
    title="Python", source="program.py", fences=("py", "python3"), warm=True,
    texts=rf"#[^\n]*|{STRINGS}", definition=r"^(?:async\s+)?(?:def|class)\s+NAME\b",
    run=(os.path.realpath(sys.executable), "program.py"),
    environment={"PYTHONPATH": ":".join([".start", *PACKAGES]), "PYTHONHASHSEED": "0",
                 "PYTHONDONTWRITEBYTECODE": "1"},
    files={".start/sitecustomize.py": START.read_bytes()},
    hello='print("hello")',
))  # fmt: skip
