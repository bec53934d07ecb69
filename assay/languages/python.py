"""Python, in the interpreter that runs assay."""

from __future__ import annotations

from assay.languages import Language, language


@language
def python() -> Language:
    """Python, run by a warm process of assay's own interpreter."""
    return Language(
        title="Python", source="program.py", fences=("py", "python3"), comment="#",
        hello='print("hello")',
    )  # fmt: skip
