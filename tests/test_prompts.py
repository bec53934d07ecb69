"""What models are shown."""

from __future__ import annotations

from assay.prompts import messages, text
from assay.types import Check, Message, Task

STUB = 'def f(n):\n    """Add one."""\n'
STUBBED = Task("t", STUB, (Check("assert f(1)"),), "f", stub=STUB)
REQUEST = "Solve this task in Python. Answer with one ```python code block."
DESCRIBED = Task("t", "Add one.", (Check("assert inc(1) == 2"),), "inc")


def test_a_stub_is_shown_in_a_code_block() -> None:
    (message,) = messages(STUBBED)
    assert message.role == "user"
    assert (
        message.content
        == "Complete this Python code. Answer with one ```python code block. It holds the whole"
        ' program.\n\n```python\ndef f(n):\n    """Add one."""\n```'
    )


def test_a_description_is_shown_as_it_is_with_the_functions_name_where_it_lacks_it() -> None:
    assert messages(DESCRIBED) == (Message("user", f"{REQUEST} It defines `inc`.\n\nAdd one."),)
    named = Task("t", "Write inc(n): add one.", DESCRIBED.checks, "inc")
    assert "It defines" not in messages(named)[0].content


def test_the_language_is_the_tasks() -> None:
    rust = Task("t", "Add one.", (Check("x"),), "", language="rust")
    assert (
        messages(rust)[0].content
        == "Solve this task in Rust. Answer with one ```rust code block.\n\nAdd one."
    )


def test_a_base_model_continues_the_stub_or_the_prompt_on_a_new_line() -> None:
    assert text(STUBBED) == STUB
    assert text(DESCRIBED) == "Add one.\n"
    assert text(Task("t", "# f(xs)\n", DESCRIBED.checks, "f")) == "# f(xs)\n"
    assert (
        text(Task("t", "x", DESCRIBED.checks, "f", stub="def f(n): return")) == "def f(n): return"
    )


def test_instructions_follow_the_request_or_come_first_as_a_comment() -> None:
    assert messages(DESCRIBED, "a\nb")[0].content == messages(DESCRIBED)[0].content + "\n\na\nb"
    assert messages(STUBBED, "a\nb")[0].content == messages(STUBBED)[0].content + "\n\na\nb"
    assert text(STUBBED, "a\n\nb") == "# a\n# \n# b\n" + STUB
