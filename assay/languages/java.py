"""Java, compiled with javac and run from an archive: any layout with one main; `assert` counts, as
tests expect.
"""

from __future__ import annotations

import re

from assay.languages import DRIVERS, Language, language
from assay.languages import TEXTS as COMMON

SEED = "-Djava.security.egd=file:/dev/urandom"
"""Without it the first random number takes 8 seconds where /dev/random cannot be opened."""


TEXTS = rf'"{{3}}(?:\\.|[^\\])*?(?:"{{3}}|\\?\Z)|{COMMON}'
FILE_ONLY = (
    r"\bpublic\s+(?=(?:[a-z]+\s+){0,4}?(?:class|record|enum|interface)\b)|\bpackage\s+[\w.]+\s*;"
)
IMPORT = re.compile(r"^[ \t]*import\b[^;\n]*;", re.MULTILINE)
TYPE = re.compile(r"\b(?:class|record|enum|interface)\b")
OWNER = re.compile(r"\b(?:Solution|Problem)\b")


class Java(Language):
    """A compiler that wants a file for each public class, and methods in classes."""

    def apart(self, program: str, tests: str, function: str) -> str:
        """As in other languages, and without what only a file of its own has; in the class that the
        tests name where a method stands alone. One that a completion left open is closed.
        """
        program = self.renamed(program, FILE_ONLY, "")
        code, owner = self.blanked(program), OWNER.search(tests)
        if owner and not TYPE.search(code):
            head = max((match.end() for match in IMPORT.finditer(code)), default=0)
            program = f"{program[:head]}class {owner[0]} {{{program[head:]}\n}}"
        elif code.count("{") == code.count("}") + 1:
            program += "}"
        return super().apart(program, tests, function)


language("java", Java(
    title="Java", version_number=r"\d+", source="Main.java", package="default-jdk-headless",
    beside="AssayDriver.java", driver="AssayDriver.java", texts=TEXTS,
    compile=("/bin/sh", "-c", (DRIVERS / "java_build.sh").read_text()),
    reserves=True, runtime_mb=768,
    run=("java", "-ea", "-XX:+UseSerialGC", "-Xss64m", SEED, "-jar", "program"),
    uses=("javac", "jar"),
    hello='class Main { public static void main(String[] a) { System.out.println("hello"); } }',
    lazy={"empty": "class Main { public static void main(String[] a) {} }",
          "echo": "class Main { public static void main(String[] a) throws Exception "
                  "{ System.in.transferTo(System.out); } }"},
))  # fmt: skip
