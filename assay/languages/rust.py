"""Rust 2021, compiled with rustc: fast, but an overflow panics, as where cargo runs tests."""

from __future__ import annotations

import re

from assay.languages import TEXTS as COMMON
from assay.languages import Language, language

TEXTS = rf'\br(?P<marks>#*+)".*?(?:"(?P=marks)|\Z)|/\*|{COMMON}'
"""Those of a comment that may hold comments have only its start."""
TEXT, EDGE = re.compile(TEXTS, re.DOTALL), re.compile(r"/\*|\*/")


class Rust(Language):
    """A language in which comments hold comments."""

    def blanked(self, source: str) -> str:
        """A source of the same length and lines, with spaces for its comments and strings."""
        pieces, end = list[str](), 0
        while text := TEXT.search(source, end):
            start, before = text.start(), end
            end = end_of_comment(source, start) if text[0] == "/*" else text.end()
            pieces += [source[before:start], re.sub(r"[^\n]", " ", source[start:end])]
        return "".join([*pieces, source[end:]])


def end_of_comment(source: str, start: int) -> int:
    """Where a comment ends that starts there, with all that it holds."""
    depth = 0
    for edge in EDGE.finditer(source, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(source)


language("rust", Rust(
    title="Rust", source="main.rs", fences=("rs",), package="rustc",
    compile=("rustc", "--edition=2021", "-O", "-Cdebug-assertions", "-Awarnings",
             "main.rs", "-o", "program"),
    crash_status=101, dialect="{title} {version} (edition 2021)",
    reserves=True, run=("./program",), driver="rust.rs", owner="Solution::",
    texts=TEXTS, definition=r"\bfn\s+NAME\b",
    hello='fn main() { println!("hello"); }',
    lazy={"empty": "fn main() {}",
          "echo": "fn main() { std::io::copy(&mut std::io::stdin(), "
                  "&mut std::io::stdout()).unwrap(); }"},
))  # fmt: skip
