"""Which tasks of a benchmark are among the training tasks, by programs and by prompts."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.evaluate.overlap import Pair, also_trained_on, find_overlap
from assay.evaluate.syntax import syntax_of
from assay.tasks import load
from assay.train.check_settings import warn_of_overlap
from assay.types import Check, Task

ORIGINAL = '''
def below(items: list[int], limit: int = 3) -> int:
    """How many are below."""
    count = 0
    for item in items:  # one by one
        if item < limit:
            count += 1
    return count
'''
RENAMED = """
import math
def f(a, b=3):
    n = 0
    for x in a:
        if x < b:
            n += 1
    return n
"""
LONGER = RENAMED.replace("    return n", "    print(n)\n    return n")
OTHER = """
def f(text):
    words = sorted(text.split(), key=len, reverse=True)
    return {word: text.count(word) for word in words if not word.isdigit()}
"""
COUNT = "Count the numbers of a list that are smaller than the given limit."
SORT = "Say how often each word of a text occurs, and begin with the longest."


def task(name: str, prompt: str = "", program: str | None = None, language: str = "python") -> Task:
    check = (Check("assert f(1)"),)
    return Task(name, prompt or name, check, "f", reference=program, language=language)


def alike(train: Task, bench: Task) -> Pair:
    found = find_overlap([train], [bench], programs=0.0, prompts=0.0)
    return found.pairs[0]


@pytest.mark.parametrize(
    ("program", "low", "high", "identical"),
    [
        (RENAMED, 1.0, 1.0, True),
        (RENAMED.replace("b=3", "b=4"), 1.0, 1.0, False),
        (LONGER, 0.5, 0.99, False),
        (RENAMED.replace("<", ">"), 0.3, 0.9, False),
        (OTHER, 0.0, 0.1, False),
        ("def f(:", 0.0, 0.0, False),
    ],
)
def test_names_comments_and_annotations_change_nothing_and_all_else_does(
    program: str, low: float, high: float, identical: bool
) -> None:
    pair = alike(task("t", program=program), task("b", program=ORIGINAL))
    assert low <= pair.program <= high
    assert pair.identical == identical


def test_a_demonstration_counts_as_a_program_of_a_training_task() -> None:
    shown = replace(task("t"), demonstrations=(f"Like this:\n```python\n{RENAMED}```\n",))
    assert alike(shown, task("b", program=ORIGINAL)).identical
    assert not find_overlap(
        [task("t")], [task("b", program=ORIGINAL)], programs=0.7, prompts=0.7
    ).pairs


def test_programs_of_a_line_are_not_compared() -> None:
    line = "def f(a, b):\n    return a + b\n"
    assert alike(task("t", program=line), task("b", program=line)).program == 0.0


def test_prompts_are_compared_by_runs_of_words_without_what_all_prompts_say() -> None:
    preface = "You are a helpful assistant. Write one function in Python and nothing else, please. "
    bench = [task(f"b{n}", preface + " ".join(f"w{n}_{k}" for k in range(20))) for n in range(9)]
    bench.append(task("count", preface + COUNT))
    train = [task("same", COUNT.upper()), task("other", preface + SORT)]
    (pair,) = find_overlap(train, bench, programs=0.7, prompts=0.3).pairs
    assert (pair.train.id, pair.bench.id, pair.program) == ("same", "count", 0.0)
    assert 0.3 < pair.prompt < 1.0, "the runs across the end of the preface are the benchmark's own"


JAVASCRIPT = "function below(items, limit) { let n = 0; for (const x of items) { if (x < limit) n += 1; } return n; }"  # fmt: skip  # noqa: E501
JAVA = (
    "class A { int f(int[] a, int b) { int n = 0; for (int x : a) { if (x < b) n++; } return n; } }"
)


@pytest.mark.parametrize(
    ("language", "program"),
    [("javascript", JAVASCRIPT), ("typescript", JAVASCRIPT), ("java", JAVA)],
)
def test_programs_in_other_languages_are_compared_by_their_own_grammar(
    language: str, program: str
) -> None:
    if find_spec(f"tree_sitter_{language}") is None:
        pytest.skip("needs pip install -e '.[overlap]'")
    renamed = re.sub(r"\bn\b", "total", program)
    bench = task("b", program=f"// counts\n{program}", language=language)
    assert alike(task("t", program=renamed, language=language), bench).identical
    other = program.replace("x < ", "2 * x - 1 >= ")
    assert 0.3 < alike(task("t", program=other, language=language), bench).program < 0.9
    assert syntax_of("{{{ (", language) is None


def test_two_designs_that_differ_in_names_alone_are_one() -> None:
    if find_spec("tree_sitter_verilog") is None:
        pytest.skip("needs pip install -e '.[overlap]'")
    design = "module m(input a, input b, output y);\n  wire n;\n  assign n = a & b;\n  assign y = ~n;\nendmodule\n"  # fmt: skip  # noqa: E501
    renamed = re.sub(r"\bn\b", "both", design).replace("module m", "module nand_gate")
    one, other = syntax_of(design, "verilog"), syntax_of(renamed, "verilog")
    assert one is not None
    assert one == other
    assert syntax_of(design.replace("&", "|"), "verilog") != one


def test_a_language_without_a_parser_is_named_once_and_its_prompts_are_compared() -> None:
    tasks = [task(f"{n}", COUNT, "+ >", language="befunge") for n in range(2)]
    found = find_overlap(tasks, tasks[:1], programs=0.7, prompts=0.7)
    assert [pair.prompt for pair in found.pairs] == [1.0, 1.0]
    assert found.notes == [
        "programs in befunge are not compared without a parser: pip install -e '.[overlap]' in"
        " assay's checkout"
    ]


def rows(file: Path, **programs: str) -> str:
    lines = [
        {"id": name, "prompt": f"Task {name}.", "entry_point": "f", "tests": ["assert f([1]) == 1"],
         "reference": program}
        for name, program in programs.items()
    ]  # fmt: skip
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(file)


def test_the_command_shows_pairs_side_by_side_and_its_exit_code_says_whether_there_are_any(
    tmp_path: Path,
) -> None:
    train = rows(tmp_path / "train.jsonl", a=RENAMED, c=OTHER)
    bench = rows(tmp_path / "bench.jsonl", b=ORIGINAL)
    apart = rows(tmp_path / "apart.jsonl", d=OTHER.replace("sorted", "list"))
    ran = CliRunner().invoke(app, ["overlap", train, bench])
    assert ran.exit_code == 1
    assert "programs 100% (identical), prompts 0%" in ran.stdout
    assert any(line.split() == ["┃", "a", "┃", "b", "┃"] for line in ran.stdout.splitlines())
    assert {"n += 1", "count += 1"} <= set(re.findall(r"\w+ \+= 1", ran.stdout))
    assert "1 of 1 task of" in ran.stdout
    ran = CliRunner().invoke(app, ["overlap", train, bench, "--json"])
    pairs = json.loads(ran.stdout)["pairs"]
    assert pairs == [{"train": "a", "bench": "b", "program": 1.0, "prompt": 0.0, "identical": True}]
    assert CliRunner().invoke(app, ["overlap", bench, apart]).exit_code == 0


def test_training_warns_once_of_evaluation_tasks_that_are_exact_copies(
    caplog: pytest.LogCaptureFixture,
) -> None:
    train = [task("x/1", "One.", ORIGINAL), task("x/2", "Two."), task("3", "Three.")]
    bench = [
        task("y/1", program=RENAMED), task("z", "two"), task("X/1", "Else."), task("3", "Another."),
        task("y/2", program=LONGER),
    ]  # fmt: skip
    assert also_trained_on(train, bench) == ["y/1", "z", "X/1"]
    with caplog.at_level(logging.WARNING):
        warn_of_overlap("stage", "train.jsonl", train, "bench.jsonl", bench)
        warn_of_overlap("stage", "train.jsonl", train, "bench.jsonl", bench[3:])
    (line,) = [record.getMessage() for record in caplog.records]
    assert "3 of 5 tasks of bench.jsonl are also in train.jsonl, such as y/1" in line


@pytest.mark.long
@pytest.mark.data("humaneval", "humanevalplus", "humaneval_x", "mbpp")
def test_copies_of_humaneval_are_found_whole_and_mbpp_shares_three_tasks_with_it() -> None:
    humaneval, mbpp = load("humaneval"), load("mbpp:all")
    for copy in ("humanevalplus", "humaneval_x:python"):
        found = find_overlap(load(copy), humaneval, programs=0.7, prompts=0.3)
        assert len({pair.bench.id for pair in found.pairs}) == 164
    found = find_overlap(mbpp, humaneval, programs=0.7, prompts=0.3)
    assert {pair.bench.id for pair in found.pairs} == {
        f"HumanEval/{number}" for number in (35, 55, 63)
    }
