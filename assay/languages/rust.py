"""Rust 2021, compiled with rustc: fast, but an overflow panics, as where cargo runs tests."""

from __future__ import annotations

from assay.languages import TEXTS as COMMON
from assay.languages import Language, language

TEXTS = rf'\br(?P<marks>#*+)".*?(?:"(?P=marks)|\Z)|{COMMON}'


language("rust", Language(
    title="Rust", source="main.rs", fences=("rs",), package="rustc",
    compile=("rustc", "--edition=2021", "-O", "-Cdebug-assertions", "-Awarnings",
             "main.rs", "-o", "program"),
    run=("./program",), driver="rust.rs", owner="Solution::",
    texts=TEXTS, definition=r"\bfn\s+NAME\b",
    hello='fn main() { println!("hello"); }',
    lazy={"empty": "fn main() {}",
          "echo": "fn main() { std::io::copy(&mut std::io::stdin(), "
                  "&mut std::io::stdout()).unwrap(); }"},
))  # fmt: skip
