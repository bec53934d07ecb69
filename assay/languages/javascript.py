"""JavaScript, run by node."""

from __future__ import annotations

from assay.languages import Language, driver, language


def drive(program: str, function: str) -> tuple[str, str]:
    """The driver below the program."""
    return f"{program}\n{driver('javascript.js', function)}", ""


@language
def javascript() -> Language:
    """JavaScript, run by node."""
    return Language(
        title="JavaScript", source="main.js", fences=("js", "node", "nodejs"), package="nodejs",
        run=("node", "main.js"), runtime_mb=512, drive=drive,
        hello='console.log("hello")',
        lazy={"empty": "", "echo": 'process.stdout.write(require("fs").readFileSync(0))'},
    )  # fmt: skip
