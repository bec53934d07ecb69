"""Replies in every form and ten languages, each with the program that a person would choose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.errors import DataError
from assay.extract import program
from assay.judge import Job
from assay.languages import language_named
from assay.types import Call, Exchange, Task, TestBench
from tests.judge.opened import judge_all
from tests.replies.programs import PROGRAMS

FOLDER = Path(__file__).parent / "replies"
FORMS = re.split(r"^== (.*)\n", (FOLDER / "forms.txt").read_text(), flags=re.MULTILINE)[1:]
SINGLE = re.split(r"^== (.*)\n", (FOLDER / "single.txt").read_text(), flags=re.MULTILINE)[1:]
JUDGED = ("sample output without a tag", "a second block that only uses the first",
          "prose around bare code", "harmony's channels")  # fmt: skip
NONE = "= none\n"


def task(language: str, *, function: bool) -> Task:
    """The task to double a number, as a program or as a function."""
    check = Call("[3]", "6") if function else Exchange("3\n", "6\n")
    if function and language == "verilog":
        return Task("t", "Double it.", (TestBench("", "twice", ""),), "", language)
    return Task("t", "Double it.", (check,), "twice" if function else "", language)


def cases() -> Iterator[tuple[str, str, bool, str, str | None]]:
    """Language, form, whether it is a function, reply and right program."""
    for name, form in zip(FORMS[::2], FORMS[1::2], strict=True):
        form = form.rstrip("\n") + "\n"
        for language, own in PROGRAMS.items():
            for function in (False, True):
                right = own.function if function else own.program
                parts = {"{P}": right, "{U}": own.use, "{D}": own.draft, "{L}": language}
                reply = re.sub(r"\{[PUDL]\}", lambda it: parts[it[0]], form.removesuffix(NONE))  # noqa: B023
                yield language, name, function, reply, None if form.endswith(NONE) else right


CASES = list(cases())


@pytest.mark.parametrize("language", PROGRAMS)
def test_the_program_of_a_reply_is_the_one_that_a_person_would_choose(language: str) -> None:
    wrong = []
    for one, name, function, reply, right in CASES:
        found = program(task(one, function=function), reply) if one == language else right
        if lines(found) != lines(right):
            wrong.append(f"{name}, {'function' if function else 'program'}:\n{found}")
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong)


@pytest.mark.parametrize(("title", "text"), zip(SINGLE[::2], SINGLE[1::2], strict=True))
def test_what_is_not_the_program_is_left_out_of_it(title: str, text: str) -> None:
    kind, _, _ = title.partition(": ")
    language, _, what = kind.partition(" ")
    reply, _, right = text.partition("\n=\n")
    found = program(task(language, function=what == "function"), reply)
    assert lines(found) == lines(right or None)


@pytest.mark.long
@pytest.mark.parametrize("language", PROGRAMS)
def test_the_program_of_a_reply_passes(language: str) -> None:
    try:
        language_named(language).versions()
    except DataError as absent:
        pytest.skip(str(absent))
    replies = [
        (name, reply) for one, name, function, reply, right in CASES
        if one == language and right and not function and name in JUDGED
    ]  # fmt: skip
    asked = task(language, function=False)
    runs = judge_all([Job(asked, program(asked, reply)) for _, reply in replies])
    passed = [name for (name, _), run in zip(replies, runs, strict=True) if run.verdict == "pass"]
    assert passed == list(JUDGED)


def lines(text: str | None) -> list[str] | None:
    """Lines that are not blank: how far statements stand apart is nobody's concern."""
    return None if text is None else [line for line in text.split("\n") if line.strip()]


def test_the_table_has_many_replies_in_ten_languages() -> None:
    assert len(PROGRAMS) == 10
    assert len({reply for _, _, _, reply, _ in CASES}) > 600
