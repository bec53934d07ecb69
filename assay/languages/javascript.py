"""JavaScript, run by node."""

from __future__ import annotations

from assay.languages import Language, language


@language
def javascript() -> Language:
    """JavaScript, run by node."""
    return Language(
        title="JavaScript", source="main.js", fences=("js", "node", "nodejs"), package="nodejs",
        run=("node", "main.js"), runtime_mb=512, driver="javascript.js",
        hello='console.log("hello")',
        lazy={"empty": "", "echo": 'process.stdout.write(require("fs").readFileSync(0))'},
    )  # fmt: skip
