"""Go, compiled with go build."""

from __future__ import annotations

from assay.languages import Language, language


@language
def go() -> Language:
    """Go, compiled with go build."""
    return Language(
        title="Go", source="main.go", fences=("golang",), package="golang-go",
        compile=("go", "build", "-o", "program", "main.go"), run=("./program",),
        asks_version="version",
        environment={"GO111MODULE": "off", "CGO_ENABLED": "0", "GOMAXPROCS": "2"},
        hello='package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }',
        lazy={"empty": "package main\n\nfunc main() {}",
              "echo": 'package main\n\nimport ("io"; "os")\n\n'
                      "func main() { io.Copy(os.Stdout, os.Stdin) }"},
    )  # fmt: skip
