"""C17, compiled with gcc."""

from __future__ import annotations

from assay.languages import Language, language

language("c", Language(
    title="C", source="main.c", package="gcc",
    compile=("gcc", "-O2", "-std=gnu17", "-w", "main.c", "-o", "program", "-lm"),
    run=("./program",),
    hello='#include <stdio.h>\nint main(void) { puts("hello"); }',
    lazy={"empty": "int main(void) { return 0; }",
          "echo": "#include <stdio.h>\nint main(void) { int c;"
                  " while ((c = getchar()) != EOF) putchar(c); }"},
))  # fmt: skip
