"""A language: programs in Perl that read standard input. Tasks with `language = "perl"`."""

from __future__ import annotations

from assay.languages import Language, language

language("perl", Language(
    title="Perl", source="main.pl", fences=("pl",), package="perl",
    run=("perl", "main.pl"),
    hello='print "hello\\n";',
    lazy={"empty": "", "echo": "print while <STDIN>;"},
))  # fmt: skip
