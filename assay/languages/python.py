"""Python, run by assay's own interpreter: in a warm process, or in a folder."""

from __future__ import annotations

import sys

from assay.languages import DRIVERS, Language, language
from assay.sandbox.access import INTERPRETER

START = DRIVERS / "python_start.py"
PACKAGES = [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]

STRINGS = (
    r"\"{3}(?:\\.|\\\Z|[^\\])*?(?:\"{3}|\Z)|'{3}(?:\\.|\\\Z|[^\\])*?(?:'{3}|\Z)"
    r"|\"(?:\\.|\\\Z|[^\"\\\n])*\"?|'(?:\\.|\\\Z|[^'\\\n])*'?"
)


language("python", Language(
    title="Python", source="program.py", fences=("py", "python3"), reserves=True, warm=True,
    texts=rf"#[^\n]*|{STRINGS}", definition=r"^\f*+(?:async\s+)?(?:def|class)\s+NAME\b",
    run=(INTERPRETER[0], "program.py"),
    environment={"PYTHONPATH": ":".join([".start", *PACKAGES]), "PYTHONHASHSEED": "0",
                 "PYTHONDONTWRITEBYTECODE": "1"},
    files={".start/sitecustomize.py": START.read_bytes()},
    dialect="Python {}.{}".format(*sys.version_info), hello='print("hello")',
))  # fmt: skip
