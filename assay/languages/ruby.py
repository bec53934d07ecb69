"""Ruby, run by its interpreter."""

from __future__ import annotations

import re

from assay.languages import Language, language

TEXTS = r"#[^\n]*|\"(?:\\.|[^\"\\])*+(?:\"|\\?\Z)|'(?:\\.|[^'\\])*+(?:'|\\?\Z)"
DEFINITION = (
    r"^[ \t]*(?:def[ \t]+(?:self\.)?|class[ \t]+|module[ \t]+)NAME\b"
    r"|^[ \t]*NAME[ \t]*=[ \t]*(?:->|lambda\b|proc\b)"
)
DATA = re.compile(r"^__END__(?:\n|\Z)", re.MULTILINE)


class Ruby(Language):
    """Programs that may end with their data."""

    def without_exit(self, program: str) -> str:
        """A program with its data in a constant, which Ruby itself reads from the file's end."""
        code, *data = DATA.split(program, maxsplit=1)
        if not data:
            return program
        text = re.sub(r"[\\']", r"\\\g<0>", data[0])
        return f"{code}BEGIN {{ require 'stringio'; DATA = StringIO.new('{text}') }}\n"


language("ruby", Ruby(
    title="Ruby", source="main.rb", fences=("rb",), package="ruby",
    run=("ruby", "-W0", "-EUTF-8", "--disable=did_you_mean,error_highlight", "main.rb"),
    runtime_mb=128, driver="ruby.rb", texts=TEXTS, definition=DEFINITION,
    hello='puts "hello"',
    lazy={"empty": "", "echo": "print $stdin.read"},
))  # fmt: skip
