"""JavaScript, run by node."""

from __future__ import annotations

import re

from assay.languages import Language, language

EXPORT = re.compile(
    r"\A#![^\n]*|^export[ \t]+(?:default[ \t]+)?"
    r"(?=(?:async[ \t]+)?(?:function|class|const|let|var)\b)"
    r"|^export[ \t]*(?:default\b[ \t]*\w+|\{[^{}]*\})[ \t]*;?[ \t]*$",
    re.MULTILINE,
)
MODULE = re.compile(r"^import\b(?!\s*\()", re.MULTILINE)
REQUIRE = (
    "import { createRequire as assayRequire } from 'node:module';"
    " globalThis.require = assayRequire('file:///'); globalThis.module = { exports: {} };"
)
"""What a module lacks that test code needs."""
TEXTS = (
    r"//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)|`(?:\\.|[^`\\])*+(?:`|\\?\Z)"
    r"|\"(?:\\.|[^\"\\\n])*+\"?|'(?:\\.|[^'\\\n])*+'?"
)
DEFINITION = (
    r"\b(?:function\s*\*?|class|const|let|var)\s+NAME\b(?!\s*=\s*require\b)"
    r"|\b(?:module\.)?exports\.NAME\s*="
    r"|^[ \t]*(?:(?:async|static|public|private)[ \t]+){0,3}NAME\s*\([^()]{0,999}\)[^;(){}]{0,99}\{"
)
DEMONSTRATIONS = (
    r"(?:console\.|assert\b|(?:describe|test|it|main|solve)\(|process\.exit|NAME\("
    r"|if\s*\(\s*(?:require\.main|import\.meta|typeof require))"
)


class Script(Language):
    """What node runs: replies end with what tries the function."""

    def without_demos(self, source: str, name: str) -> str:
        """A source without the statements at its top level that only try this function."""
        starts = re.compile(DEMONSTRATIONS.replace("NAME", re.escape(name)))
        rest, depth, drops = list[str](), 0, False
        lines = source.split("\n")
        for line, bare in zip(lines, self.blanked(source).split("\n"), strict=True):
            drops = starts.match(bare) is not None if depth == 0 else drops
            depth = max(depth + sum(bare.count(bracket) for bracket in "([{"), 0)
            depth = max(depth - sum(bare.count(bracket) for bracket in ")]}"), 0)
            rest += [] if drops else [line]
        return "\n".join(rest)


class JavaScript(Script):
    """Programs that may be modules."""

    def with_imports(self, source: str) -> str:
        """A program that test code follows, which needs `require`: a script, or what imports."""
        script = EXPORT.sub("", source)
        return REQUIRE + script if MODULE.search(self.blanked(script)) else script


language("javascript", JavaScript(
    title="JavaScript", source="main.js", fences=("js", "node", "nodejs"), package="nodejs",
    run=("node", "main.js"), runtime_mb=512, driver="javascript.js",
    texts=TEXTS, definition=DEFINITION,
    hello='console.log("hello")',
    lazy={"empty": "", "echo": 'process.stdout.write(require("fs").readFileSync(0))'},
))  # fmt: skip
