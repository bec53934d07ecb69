"""The rules by which others read and compare answers, beside ours, on replies of models."""

from __future__ import annotations

import logging
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from assay.extract import program
from assay.judge import Job, judge_all
from assay.types import Answer, Task, Verdict

REMOVED = (
    "square", "ways", "integers", "dollars", "mph", "inches", "ft", "hours", "km", "units",
    "points", "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters",
    "edges", "students", r"\text{s}", r"\text{.}", r"\text{}", r"\mathrm{th}", r"^\circ",
    r"^{\circ}", r"\;", r",\!", "{,}", '"', r"\dots", r"\$", r"\ ", " ",
)  # fmt: skip
NAMES = ("right", "math-verify", "Minerva", "NeMo RL", "assay")


def rows() -> list[tuple[str, str, str]]:
    """Right answer, reply, and who says that it is right: a letter for each of NAMES."""
    text = Path(__file__).with_name("public_rules.txt").read_text()
    lines = [line.split(" | ") for line in text.splitlines() if not line.startswith("#")]
    return [(right, reply.replace("\u23ce", "\n"), said) for right, reply, said in lines]


def by_math_verify(right: str, reply: str) -> bool:
    """As its own tests do."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    read = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
    both = [parse(text, read, parsing_timeout=None) for text in (f"${right}$", reply)]
    return bool(verify(*both, timeout_seconds=None))


def by_nemo_rl(right: str, reply: str) -> bool:
    """Its HFVerifyWorker: math-verify with the right answer in a box and its other defaults."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    gold = parse(rf"\boxed{{{right}}}", [LatexExtractionConfig()], parsing_timeout=None)
    answer = parse(reply, [ExprExtractionConfig(), LatexExtractionConfig()], parsing_timeout=None)
    return bool(verify(gold, answer, timeout_seconds=None))


def by_minerva(right: str, reply: str) -> bool:
    """Appendix D of arXiv:2206.14858: the sentence it asks for, and texts that must be the same."""
    said = re.search(r"The final answer is(.*?)\.?\s*I hope it is correct", reply, re.DOTALL)
    boxed = re.findall(r"\\boxed\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}", reply)
    answer = said[1] if said else boxed[-1] if boxed else None
    return answer is not None and minerva_form(answer) == minerva_form(right)


def minerva_form(answer: str) -> str:
    answer = answer.split("=")[-1].strip()
    for what in REMOVED:
        answer = answer.replace(what, "")
    answer = re.sub(r".*?\$(.*?)\$.*", r"\1", answer)
    answer = re.sub(r"\\(?:text|textbf|overline|boxed)\{(.*?)\}", r"\1", answer)
    answer = re.sub(r"frac([^{])(.)", r"frac{\1}{\2}", answer)
    answer = re.sub(r"sqrt([^{])", r"sqrt{\1}", answer).replace("$", "")
    return answer.replace(",", "") if answer.replace(",", "").isdigit() else answer


def by_us(asked: list[tuple[str, str]]) -> list[bool]:
    tasks = [Task("q", "q", (Answer(right),), "", language="answer") for right, _ in asked]
    jobs = [Job(task, program(task, reply)) for task, (_, reply) in zip(tasks, asked, strict=True)]
    return [one.verdict is Verdict.PASS for one in judge_all(jobs, slots=1)]


@pytest.mark.long
@pytest.mark.skipif(not find_spec("math_verify"), reason="needs math-verify")
def test_others_rules_stand_beside_ours_and_ours_pass_nothing_that_is_wrong() -> None:
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    found = []
    ours = by_us([(right, reply) for right, reply, _ in rows()])
    for (right, reply, said), passed in zip(rows(), ours, strict=True):
        rules = (by_math_verify, by_minerva, by_nemo_rl)
        verdicts = [said[0] == "+", *(rule(right, reply) for rule in rules), passed]
        found.append((right, reply, "".join("-+"[one] for one in verdicts)))
    assert [row for row in found if row[2][0] == "-" and row[2][-1] == "+"] == []
    assert found == rows()
