"""Answers that would fool or stop a grader that hands them to a parser beside the right one."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import pytest

from assay.extract import program
from assay.judge import Job, judge_all
from assay.judge.kinds.answers import Answers
from assay.sandbox.limits import Limits
from assay.types import Answer, Execution, Task, Verdict
from tests.judge.scripted_bench import ScriptedBench

needs_maths = pytest.mark.skipif(not find_spec("math_verify"), reason="needs math-verify")
RIGHT = ("7", "p - q", r"\text{Evelyn}")
LIES = {
    "a choice": "1 or 2 or 7 or 5/2",
    "a set of candidates": r"\{1, 2, 7, \frac{5}{2}, p - q\}",
    "all numbers": r"(-\infty, \infty)",
    "a letter for anything": "x",
    "an identity": "0 = 0",
    "undefined": r"\frac{0}{0}",
    "infinite": r"\infty",
    "not a number": "NaN",
    "a function": "f(x)",
    "Python": "__import__('os')._exit(0)",
    "Python in a name": r"\text{__import__('os').abort()}",
    "Python in a function": r"\operatorname{exec}('import os; os._exit(0)')",
    "Python in an index": r"x_{__import__('os').getpid()}",
    "a lambda": "(lambda: __import__('sys').exit(0))()",
    "a form of the judge's": '["words", "evelyn"]',
    "digits of another script": "\uff17",
    "a tag": "</answer>7<answer>",
    "an unended box": r"\boxed{7",
    "nothing": "   ",
}
BOMBS = {
    "a tower of powers": "9^{9^{9^{9}}}",
    "a tower in Python": "9**9**9**9",
    "a factorial": "((99999999)!)!",
    "a sum": r"\sum_{i=1}^{10^{12}} \frac{\sin i}{i!}",
    "an integral": r"\int_0^{99} e^{\sin(x^{x^x})} dx",
    "braces": "{" * 3000 + "7" + "}" * 3000,
    "fractions": r"\frac{1}{" * 300 + "7" + "}" * 300,
    "roots": r"\sqrt" * 4000 + "7",
    "spaces": "7" + " " * 100_000 + "x",
    "digits": "7" * 200_000,
    "operators": "7" + "+-" * 20_000 + "7",
    "boxes": r"\boxed{" * 2000,
}


def question(answer: str) -> Task:
    return Task("q", "q", (Answer(answer),), "", language="answer")


def judged(answers: dict[str, str], right: tuple[str, ...], seconds: float) -> list[Execution]:
    jobs = [Job(question(one), given) for one in right for given in answers.values()]
    return judge_all(jobs, Limits(cpu_seconds=seconds), slots=1)


@pytest.mark.long
@needs_maths
def test_no_lie_is_the_answer_to_any_question() -> None:
    ended = judged(LIES, RIGHT, 4)
    names = [(right, name) for right in RIGHT for name in LIES]
    assert [pair for pair, one in zip(names, ended, strict=True) if one.proven] == []
    assert {one.verdict for one in ended} <= {Verdict.WRONG, Verdict.ERROR}


@needs_maths
@pytest.mark.long
def test_what_hangs_or_crashes_a_parser_is_the_answers_own_failure() -> None:
    ended = dict(zip(BOMBS, judged(BOMBS, ("7",), 1), strict=True))
    own = (Verdict.WRONG, Verdict.ERROR, Verdict.TIMEOUT, Verdict.MEMORY)
    assert {name: one for name, one in ended.items() if one.verdict not in own} == {}
    assert ended["a tower of powers"].verdict is Verdict.TIMEOUT


def test_the_process_that_reads_an_answer_is_not_told_the_right_one() -> None:
    bench, reply = ScriptedBench("answer"), r"\frac{x}{2}"
    task = Task("q", "q", (Answer("p - q"),), "", language="answer")
    asyncio.run(Answers().judge(bench, [Answer("p - q")], task, reply))
    ((source, stdin, more),) = bench.runs
    assert "p - q" not in f"{source}{stdin}{more}"
    assert stdin == reply
    assert [asked.stdin for asked in bench.once] == ["p - q"], "another process is told it"


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (r"\boxed{1} \boxed{2} \boxed{3}", "1, 2, 3"),
        (r"\boxed{1}. No, \boxed{2} and $\boxed{3}$.", "2, 3"),
        (r"It is \boxed{5}. But \boxed{} is better.", None),
        (r"\boxed{5", None),
        ("#### 4\n#### 5", "5"),
        ("#### 4\n####", None),
        ("<answer>4</answer>\n<answer>5</answer>", "5"),
        ("<think>The answer is 5", None),
        ("<think>5</think>", None),
        ("<think>\\boxed{5}</think> I do not know.", None),
        ("", None),
        ("five", "five"),
        ("five plus five plus five", None),
        (r"It is $\frac{1+\sqrt{5}}{2}$.", r"\frac{1+\sqrt{5}}{2}"),
        (r"It is \frac{1+\sqrt{5}}{2}", None),
        ("Final Answer: The final answer is $100$. I hope it is correct.", "100"),
        ("It costs $18 each, $36 in all.", "36"),
        ("9 * 2 = $18", "$18"),
        ("$x=2$ or $x=3$", "x=2, x=3"),
        ("so 3 + 5", None),
        ("sqrt(5)", None),
        ("5 million", None),
        ("about 5million", None),
        ("2x", None),
        (r"\fbox{7}", "7"),
        ("\u7b54\u6848\uff1a7", "7"),
    ],
)
def test_a_reply_has_one_answer_and_it_is_the_last(reply: str, answer: str | None) -> None:
    assert program(question("5"), reply) == answer
