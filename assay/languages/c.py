"""C, compiled with gcc as its newest standard, or else as C17."""

from __future__ import annotations

from assay.languages import Language, language

language("c", Language(
    title="C", source="main.c", package="gcc",
    compile=("gcc", "-O2", "-std=STANDARD", "-w", "main.c", "-o", "program", "-lm"),
    reserves=True, crash_status=4, run=("./program",),
    standards=("gnu23", "gnu2x", "gnu17"), dialect="C{standard}",
    hello='#include <stdio.h>\nint main(void) { puts("hello"); }',
    lazy={"empty": "int main(void) { return 0; }",
          "echo": "#include <stdio.h>\nint main(void) { int c;"
                  " while ((c = getchar()) != EOF) putchar(c); }"},
))  # fmt: skip
