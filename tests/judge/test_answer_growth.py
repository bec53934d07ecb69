"""What reads answers takes time linear in their length: eight times the text, not 64 times."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from assay.judge.answer_text import plain_number, reading, unnamed
from assay.judge.kinds.answers import by_text
from assay.languages import language_named
from assay.languages.answer import final_answer
from assay.types import Answer

SIZE, ROUNDS, MOST, ENOUGH = 5_000, 4, 20, 0.0005
READERS: dict[str, Callable[[str], object]] = {
    "the last answer of a reply": lambda text: final_answer(text, False),
    "the whole of a tag": lambda text: final_answer(text, True),
    "the cut of a tag": lambda text: language_named("answer").cut(text, whole=True),
    "letter, value and unit": reading,
    "a plain number": lambda text: (plain_number(text), plain_number(text[:200], anywhere=True)),
    "names before a value": lambda text: unnamed(text, text),
    "the judge": lambda text: by_text(Answer("7"), text),
}
TEXTS = (
    " ", "\n", "7 ", "7", "7,", ".", "7.", "$", "$7", "\\(", "\\[ \\", "{", "}", "\\{", "\\", "=",
    "x=", "(", "(x,", "(x)=", "\\boxed{", "\\boxed {", "\\boxed{7}", "\\boxed{7} and ", "\\text{",
    "\\text ", "\\text{a} ", "\\texta", "answer is ", "answer ", "answer:", "####", "####\n", "7/",
    "7 / ", "7%", "percent", "\\text{percent", "a ", "a-", "and ", "- ", "^\\circ", "^{", "7 - ",
    "x_{", "-7", "<solution>", "<solution>7</solution>", "</solution>", "<final><result>", ", ",
    " since", ", so", "the answer is ", "\\text{the answer is ", "A ",
    " (", ") ", "7 (", " (7)", "(7 ", "or ", "7 (or 7) ", "one ", "twenty-", "\\frac{7}{", "i.e. ",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("reader", READERS)
def test_eight_times_the_text_takes_an_answers_reader_far_less_than_the_square_of_that(
    reader: str,
) -> None:
    grown = {}
    for unit in TEXTS:
        for before, after in (("", ""), ("7", "x"), ("answer is 7", "x"), ("\\boxed{", "}x")):
            texts = [before + unit * (size // len(unit)) + after for size in (SIZE, 8 * SIZE)]
            for _ in range(ROUNDS):  # again, undisturbed
                short, long = (seconds(READERS[reader], text) for text in texts)
                if long <= MOST * max(short, ENOUGH):
                    break
            else:
                grown[before, unit, after] = short, long
    assert grown == {}


def seconds(read: Callable[[str], object], text: str) -> float:
    """CPU time."""
    begun = time.process_time()
    read(text)
    return time.process_time() - begun
