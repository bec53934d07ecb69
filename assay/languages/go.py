"""Go, compiled with go build."""

from __future__ import annotations

import re

from assay.languages import TEXTS as COMMON
from assay.languages import Language, language

PACKAGES = (
    "bufio", "bytes", "container/heap", "crypto/md5", "encoding/hex", "errors", "fmt", "math",
    "math/big", "math/bits", "math/rand", "os", "reflect", "regexp", "sort", "strconv", "strings",
    "testing", "time", "unicode", "unicode/utf8",
)  # fmt: skip
IMPORTS = re.compile(r"^import\s*+(?:\([^()]*+\)|(?:\w++\s++)?\"[^\"\n]*+\")", re.MULTILINE)
SPEC = re.compile(r"(?:(?!import\b)\b(\w+)[ \t]+)?\"([^\".\n]+)\"")
"""The import of one of Go's packages, which have no dot in their path, perhaps by another name."""
TEXTS = rf"{COMMON}|`[^`]*+(?:`|\Z)"
DEFINITION = r"\bfunc\s+(?:\([^()\n]*\)\s*)?NAME\b|^var\s+NAME\b[^=\n]{0,199}=\s*func\b"


class Go(Language):
    """A compiler that refuses imports that are not used."""

    def with_imports(self, source: str) -> str:
        """A source with those of its imports, and of the packages of tests, that it uses."""
        if not source:
            return source
        body = self.renamed(IMPORTS.sub("", source), r"(?m)^package\s+\w+", "")
        words = {*re.findall(r"\b(\w+)\.", self.blanked(body))}
        specs = SPEC.findall("".join(IMPORTS.findall(source)))
        paths = {path.rpartition("/")[2]: path for path in PACKAGES}
        paths |= {name or path.rpartition("/")[2]: path for name, path in specs}
        used = [(name, path) for name, path in paths.items() if name in words]
        imports = "".join(f'import {name} "{path}"\n' for name, path in used)
        return f"package main\n\n{imports}{body}"


language("go", Go(
    title="Go", source="main.go", beside="tests.go", fences=("golang", "go_test.go"),
    package="golang-go", compile=("go", "build", "-o", "program", "."), run=("./program",),
    driver="go.go", definition=DEFINITION, texts=TEXTS,
    asks_version="version",
    environment={"GO111MODULE": "off", "CGO_ENABLED": "0", "GOMAXPROCS": "2"},
    hello='package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }',
    lazy={"empty": "package main\n\nfunc main() {}",
          "echo": 'package main\n\nimport ("io"; "os")\n\n'
                  "func main() { io.Copy(os.Stdout, os.Stdin) }"},
))  # fmt: skip
