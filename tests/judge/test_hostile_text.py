"""Text that made the judge's own process slow, or passed for what it is not, when a hostile reader
tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from assay.extract.thoughts import first_thought, without_end
from assay.judge.answer_text import plain_number, reading, unnamed
from assay.judge.kinds.verilog_screen import refusal, used, without_comments
from assay.judge.runner import encoded
from assay.languages import language_named
from assay.languages.answer import final_answer
from assay.rewards.lint import unsilenced

LONG = 10.0
"""CPU seconds that any of these may take; most took minutes."""


def screened(program: str) -> str:
    return refusal(used(program, "top"), "module tb; endmodule", "top")


SLOW: dict[str, Callable[[], object]] = {
    "brackets in brackets": lambda: screened(
        f"module top; initial begin {'a.b;' * 1500}{'[' * 3000}{']' * 3000} a end endmodule"
    ),
    "dots": lambda: screened("a.b " * 6000 + " " * 6000 + "a"),
    "open comments": lambda: screened("/* " * 16_000),
    "an open string": lambda: screened('"\\' * 24_000),
    "modules without an end": lambda: screened("module a " * 5000),
    "names that begin with digits": lambda: screened("0a0a0a0a " * 5000),
    "blocks that are disabled": lambda: screened("disable a; " * 4000),
    "exits of q": lambda: language_named("q").without_exit("exit 0  " * 6000 + "x"),
    "spaces after an answer": lambda: final_answer(f"answer is x{' ' * 50_000}x", False),
    "strings for the linter": lambda: without_comments('"\\' * 50_000),
    "strings of several lines": lambda: screened('"\\\n' * 16_000),
    "imports of Go": lambda: language_named("go").with_imports("import (\n" * 6_000),
    "comments of Go": lambda: language_named("go").with_imports("/*" * 25_000),
    "mains": lambda: language_named("rust").apart("fn main<\n" * 5_000, "fn main() {}", "f"),
    "methods of Rust": lambda: language_named("rust").drive("{" + "fn f " * 60_000, "f"),
    "end tokens": lambda: without_end("</s> " * 20_000),
    "tags of reasoning": lambda: first_thought("<think>" * 50_000),
}


@pytest.mark.parametrize("what", SLOW)
def test_text_of_a_program_is_read_in_time(what: str) -> None:
    begun = time.process_time()
    SLOW[what]()
    assert time.process_time() - begun < LONG


@pytest.mark.parametrize(
    "text",
    [
        r"\sqrt{25}",
        "5!",
        "5^{x}",
        r"\frac{5}{x}",
        r"1\frac{1}{2}",
        "1 2",
        "(5, x)",
        "2_5",
        "5=x",
        "x5",
        "AB5C",
        "5n",
        "5 million",
        "a dozen and 5",
        "x=4 or x=5",
    ],
)
def test_a_formula_around_a_number_is_not_that_number(text: str) -> None:
    assert plain_number(reading(text).body, anywhere=True) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("\N{MINUS SIGN}5", -5),
        ("\N{EN DASH}5", -5),
        ("x = 7", 7),
        (r"7\text{ cm}", 7),
        ("$12,345", 12_345),
        ("1 234", 1234),
    ],
)
def test_a_number_is_read_with_its_sign_its_letter_and_its_unit(text: str, value: int) -> None:
    found = plain_number(unnamed(reading(text).body, "")[0], anywhere=True)
    assert found is not None
    assert found[0] == value


def test_a_name_right_after_a_number_is_seen_by_the_screen() -> None:
    assert screened("module top; initial #10tb.x = 1; endmodule").startswith("it looks into 'tb'")


def test_exits_at_the_end_of_a_program_in_q_are_taken_off_and_no_others() -> None:
    cut = language_named("q").without_exit
    assert cut("f:{x}\nexit 0;\n\\\\\n") == "f:{x}"
    assert cut("g:{exit 0; x}\nf:{x}") == "g:{exit 0; x}\nf:{x}"


def test_a_surrogate_in_a_program_is_no_fault_of_the_judge() -> None:
    assert encoded("\udc80") == b"\x80"
    assert encoded("\ud800") == b"?"


def test_what_switches_warnings_off_does_not_reach_the_linter() -> None:
    assert "verilator_config" not in unsilenced("`verilator_config\nlint_off\n`verilog\n")
    escaped = 'wire \\" ; /* verilator lint_off WIDTH */ wire \\x" ;'
    assert unsilenced(escaped) == 'wire \\" ;   wire \\x" ;'
