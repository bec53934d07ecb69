"""Ruby, run by its interpreter."""

from __future__ import annotations

from assay.languages import Language, language

TEXTS = r"#[^\n]*|\"(?:\\.|[^\"\\])*+(?:\"|\\?\Z)|'(?:\\.|[^'\\])*+(?:'|\\?\Z)"
DEFINITION = (
    r"^[ \t]*(?:def[ \t]+(?:self\.)?|class[ \t]+|module[ \t]+)NAME\b"
    r"|^[ \t]*NAME[ \t]*=[ \t]*(?:->|lambda\b|proc\b)"
)


language("ruby", Language(
    title="Ruby", source="main.rb", fences=("rb",), package="ruby",
    run=("ruby", "-W0", "-EUTF-8", "--disable=did_you_mean,error_highlight", "main.rb"),
    runtime_mb=128, driver="ruby.rb", texts=TEXTS, definition=DEFINITION,
    hello='puts "hello"',
    lazy={"empty": "", "echo": "print $stdin.read"},
))  # fmt: skip
