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
REGEX = (
    r"(?:(?<=[(,=:\[!&|?{;])|(?<=[(,=:\[!&|?{;] )|(?<=\breturn ))"
    r"/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n]){0,199}\]?|[^/\\\[\n]){0,999}/?"
)
"""A regular expression, by what stands before it: elsewhere a slash divides."""
TEXTS = (
    rf"{REGEX}|//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)|`(?:\\.|[^`\\])*+(?:`|\\?\Z)"
    r"|\"(?:\\.|[^\"\\\n])*+\"?|'(?:\\.|[^'\\\n])*+'?"
)
DEFINITION = (
    r"\b(?:(?:function|class|const|let|var)\s+|function\s*\*\s*)NAME\b(?!\s*=\s*require\b)"
    r"|\b(?:const|let|var)\b[^;\n]{0,299},\s*NAME\s*=(?!=)"
    r"|\b(?:const|let|var)\s*\{[^{}]{0,299}\bNAME\b[^{}]{0,299}\}\s*=(?!=|\s*require\b)"
    r"|\b(?:(?:module\.)?exports|global(?:This)?)\.NAME\s*=(?!=)"
    r"|^NAME\s*=\s*(?:async\b\s*)?(?:function\b|\([^()]{0,999}\)\s*=>|\w+\s*=>)"
    r"|(?:^|[{};,])[ \t]*(?:(?:async|static|public|private)[ \t]+){0,3}"
    r"NAME\s*\([^()]{0,1999}\)[^;(){}]{0,99}\{"
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
    dialect="{title} (Node.js {version})", version_number=r"\d+",
    texts=TEXTS, definition=DEFINITION,
    hello='console.log("hello")',
    lazy={"empty": "", "echo": 'process.stdout.write(require("fs").readFileSync(0))'},
))  # fmt: skip
