"""Java, compiled with javac and run from an archive."""

from __future__ import annotations

from assay.languages import DRIVERS, Language, language
from assay.languages import TEXTS as COMMON

SEED = "-Djava.security.egd=file:/dev/urandom"
"""Without it the first random number takes 8 seconds where /dev/random cannot be opened."""


TEXTS = rf'"{{3}}(?:\\.|[^\\])*?(?:"{{3}}|\\?\Z)|{COMMON}'
FILE_ONLY = (
    r"\bpublic\s+(?=(?:[a-z]+\s+){0,4}?(?:class|record|enum|interface)\b)|\bpackage\s+[\w.]+\s*;"
)


class Java(Language):
    """A compiler that wants a file for each public class."""

    def apart(self, program: str, tests: str, function: str) -> str:
        """As in other languages, and without what only a file of its own has."""
        return super().apart(self.renamed(program, FILE_ONLY, ""), tests, function)


@language
def java() -> Language:
    """Java, in any layout with one main; `assert` counts, as tests expect."""
    return Java(
        title="Java", source="Main.java", package="default-jdk-headless",
        beside="AssayDriver.java", driver="AssayDriver.java", texts=TEXTS,
        compile=("/bin/sh", "-c", (DRIVERS / "java_build.sh").read_text()), runtime_mb=768,
        run=("java", "-ea", "-XX:+UseSerialGC", "-Xss64m", SEED, "-jar", "program"),
        hello='class Main { public static void main(String[] a) { System.out.println("hello"); } }',
        lazy={"empty": "class Main { public static void main(String[] a) {} }",
              "echo": "class Main { public static void main(String[] a) throws Exception "
                      "{ System.in.transferTo(System.out); } }"},
    )  # fmt: skip
