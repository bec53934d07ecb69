"""JavaScript, run by node."""

from __future__ import annotations

import re

from assay.languages import Language, language

EXPORT = re.compile(
    r"^export[ \t]+(?:default[ \t]+)?(?=(?:async[ \t]+)?(?:function|class|const|let|var)\b)"
    r"|^export[ \t]*(?:default\b[ \t]*\w+|\{[^{}]*\})[ \t]*;?[ \t]*$",
    re.MULTILINE,
)
TEXTS = (
    r"//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)|`(?:\\.|[^`\\])*+(?:`|\\?\Z)"
    r"|\"(?:\\.|[^\"\\\n])*+\"?|'(?:\\.|[^'\\\n])*+'?"
)
DEFINITION = (
    r"\b(?:function\s*\*?|class|const|let|var)\s+NAME\b|\b(?:module\.)?exports\.NAME\s*="
    r"|^[ \t]*(?:(?:async|static|public|private)[ \t]+){0,3}NAME\s*\([^()]{0,999}\)[^;(){}]{0,99}\{"
)
DEMONSTRATIONS = (
    r"(?:console\.|assert\b|(?:describe|test|it|main|solve)\(|process\.exit|NAME\("
    r"|if\s*\(\s*(?:require\.main|import\.meta|typeof require))"
)


def without_exports(source: str) -> str:
    """A program that test code follows, as a script: a module has no `require`."""
    return EXPORT.sub("", source)


@language
def javascript() -> Language:
    """JavaScript, run by node."""
    return Language(
        title="JavaScript", source="main.js", fences=("js", "node", "nodejs"), package="nodejs",
        run=("node", "main.js"), runtime_mb=512, driver="javascript.js",
        texts=TEXTS, definition=DEFINITION, demonstrations=DEMONSTRATIONS,
        with_imports=without_exports,
        hello='console.log("hello")',
        lazy={"empty": "", "echo": 'process.stdout.write(require("fs").readFileSync(0))'},
    )  # fmt: skip
