"""Twice the text takes at most 2.5 times the CPU time in what reads answers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest

from assay.judge.answer_text import plain_number, reading, unnamed
from assay.judge.kinds.answers import Answers
from assay.languages import language_named
from assay.languages.answer import final_answer
from assay.types import Answer

SIZE, ROUNDS, MOST, NOISE = 20_000, 3, 2.5, 0.004
READERS: dict[str, Callable[[str], object]] = {
    "the last answer of a reply": lambda text: final_answer(text, False),
    "the whole of a tag": lambda text: final_answer(text, True),
    "letter, value and unit": reading,
    "a plain number": lambda text: (plain_number(text), plain_number(text[:200], anywhere=True)),
    "names before a value": lambda text: unnamed(text, text),
    "the judge": lambda text: Answers().run(Answer("7"), text, language_named("answer")),
}
TEXTS = (
    " ", "\n", "7 ", "7", "7,", ".", "7.", "$", "$7", "\\(", "\\[ \\", "{", "}", "\\{", "\\", "=",
    "x=", "(", "(x,", "(x)=", "\\boxed{", "\\boxed {", "\\boxed{7}", "\\boxed{7} and ", "\\text{",
    "\\text ", "\\text{a} ", "\\texta", "answer is ", "answer ", "answer:", "####", "####\n", "7/",
    "7 / ", "7%", "percent", "\\text{percent", "a ", "a-", "and ", "- ", "^\\circ", "^{", "7 - ",
    "x_{", "-7",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("reader", READERS)
def test_twice_the_text_takes_an_answers_reader_at_most_two_and_a_half_times_as_long(
    reader: str,
) -> None:
    grown = {}
    for unit in TEXTS:
        for before, after in (("", ""), ("7", "x"), ("answer is 7", "x"), ("\\boxed{", "}x")):
            texts = [before + unit * (size // len(unit)) + after for size in (SIZE, 2 * SIZE)]
            times = [seconds(READERS[reader], text, 1) for text in texts]
            if times[1] > MOST * times[0] + NOISE:  # again, undisturbed
                times = [seconds(READERS[reader], text, ROUNDS) for text in texts]
            if times[1] > MOST * times[0] + NOISE:
                grown[before, unit, after] = times
    assert grown == {}


def seconds(read: Callable[[str], object], text: str, rounds: int) -> float:
    """The median CPU time of some runs, or of one that takes long."""
    times: list[float] = []
    while len(times) < rounds and sum(times) < 2.0:
        begun = time.process_time()
        read(text)
        times.append(time.process_time() - begun)
    return statistics.median(times)
