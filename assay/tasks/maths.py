"""Questions with one answer: GSM8K, MATH-500, AIME, and NeMo Gym's rows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from assay.tasks import task_set
from assay.tasks.nemo_gym import prompt_of
from assay.tasks.rows import PublicSet, Row, tagged
from assay.types import Answer, Message, Task

GSM8K = PublicSet("gsm8k", "gsm8k/{}.jsonl.gz", "openai/gsm8k", "main", ("train", "test"), "{}")
MATH = PublicSet("math", "math/math.jsonl", "HuggingFaceH4/MATH-500", splits=("test",))
AIME = PublicSet("aime", "math/aime.jsonl", "HuggingFaceH4/aime_2024")
NEMO_GYM = PublicSet(
    "nemo_gym_math", "math/nemo_gym.jsonl", "nvidia/Nemotron-RL-math-OpenMathReasoning"
)
CALCULATOR = re.compile(r"<<[^<>]*>>")
"""What GSM8K's solutions tell a calculator in the middle of a sentence."""

ORDER = re.compile(
    r"\b(?:(?:in|de)creasing|(?:a|de)scending) order|\bin (?:the )?order\b"
    r"|\bfrom (?:least|smallest|lowest|greatest|largest|highest)\b"
    r"|\border(?:ed)? (?:list|from|of)\b",
    re.IGNORECASE,
)
"""How a question says that the order of its answers counts."""


def right_answer(text: str, problem: str, exact: bool = False) -> Answer:
    """The right answer to what is asked."""
    return Answer(text, exact, ordered=ORDER.search(problem) is not None)


@task_set
def gsm8k(split: str = "test") -> Iterator[Task]:
    """GSM8K: word problems whose answer is a number (arXiv:2110.14168). Splits: train, test."""
    return (word_problem(f"gsm8k/{split}/{row.place}", row) for row in GSM8K.rows(split))


@task_set
def math(split: str = "test") -> Iterator[Task]:
    """MATH-500: questions of contests, answered by formulas (arXiv:2305.20050)."""
    rows = MATH.rows(split)
    return (tagged(problem(row.text("unique_id", row.place), row), row) for row in rows)


@task_set
def aime(split: str = "all") -> Iterator[Task]:
    """AIME: contest questions whose answer is a number from 0 to 999."""
    return (problem(f"aime/{row.place}", row, exact=True) for row in AIME.rows(split))


@task_set
def nemo_gym_math(split: str = "all") -> Iterator[Task]:
    """Questions in NeMo Gym's format: question, expected_answer and the dialogue that asks it."""
    return map(of_nemo_gym, NEMO_GYM.rows(split))


def question(name: str, prompt: str, answer: Answer, *replies: str) -> Task:
    """A task whose answer is right or wrong; the `replies` are for SFT."""
    return Task(
        name, prompt, (answer,), "", "answer", reference=answer.answer, demonstrations=replies
    )


def word_problem(name: str, row: Row) -> Task:
    """A row of GSM8K: question, and an answer that ends in `#### 18`. Raises DataError."""
    solution, marked, number = row.text("answer").rpartition("####")
    if not marked:
        raise row.wrong(
            "'answer' has no line '#### NUMBER'; add it, or write 'prompt' and 'expected_answer'"
        )
    reply = CALCULATOR.sub("", f"{solution}{marked}{number}")
    return question(name, row.text("question"), Answer(number.strip(), exact=True), reply)


def problem(name: str, row: Row, exact: bool = False) -> Task:
    """A row with problem and answer, and perhaps a solution that boxes it. Raises DataError."""
    solution = row.text("solution", "")
    replies = [solution] if r"\boxed" in solution else []
    problem = row.text("problem")
    return question(name, problem, right_answer(row.answer("answer"), problem, exact), *replies)


def of_nemo_gym(row: Row) -> Task:
    """A row with question, expected_answer and responses_create_params. Raises DataError."""
    right, asked_for, dialogue = row.answer("expected_answer"), row.text("question"), prompt_of(row)
    name = str(row.fields.get("id") or f"nemo_gym_math/{row.place}")
    return Task(
        name, asked_for, (right_answer(right, asked_for),), "", "answer", reference=right,
        messages=(Message("user", dialogue),) if dialogue else (),
    )  # fmt: skip
