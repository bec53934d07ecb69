"""Rust, compiled with rustc."""

from __future__ import annotations

from assay.languages import Language, language


@language
def rust() -> Language:
    """Rust 2021, compiled with rustc."""
    return Language(
        title="Rust", source="main.rs", fences=("rs",), package="rustc",
        compile=("rustc", "--edition=2021", "-O", "-Awarnings", "main.rs", "-o", "program"),
        run=("./program",), driver="rust.rs",
        hello='fn main() { println!("hello"); }',
        lazy={"empty": "fn main() {}",
              "echo": "fn main() { std::io::copy(&mut std::io::stdin(), "
                      "&mut std::io::stdout()).unwrap(); }"},
    )  # fmt: skip
