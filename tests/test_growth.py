"""What reads text of a model, a program or a client takes time in proportion to its length: twice
the text never takes much more than twice the CPU time. Most of it runs in the event loop of the
trainer or of the service.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from inspect import unwrap
from types import SimpleNamespace
from typing import Any

import pytest

from assay import extract
from assay.errors import UserError
from assay.evaluate.syntax import syntax_of
from assay.extract import thoughts
from assay.integrations import responses
from assay.integrations.notebook import RESULTS
from assay.judge import codec, task_code
from assay.judge.builds import MENTIONS_FILES
from assay.judge.checkers import CHECKERS, close, difference
from assay.judge.codec_types import CodecError
from assay.judge.kinds import harness, test_bench, verilog_screen
from assay.judge.kinds.test_functions import is_doctest
from assay.judge.prepared_task import ELSEWHERE, NUMERIC, RUNS_FILES, USES_FILES
from assay.judge.task_code import is_harmless
from assay.judge.verdict import parse_report
from assay.languages import language_named
from assay.languages.answer import final_answer
from assay.rewards import format, lint, quality, reasoning, tools
from assay.sandbox.ending import NAMES_ERROR
from assay.suggestions import suggest
from assay.tasks import cases, jsonl, rtllm
from assay.tasks.rows import LeftOutError, Row
from assay.types import Completion, Execution, Rollout, Score, Task, Turn, Verdict, printable

Reader = Callable[[str], object]
MOST, ROUNDS = 2.5, 3
SMALL, LARGE, ENOUGH = 8_000, 500_000, 0.01
"""Characters of the first and of the longest text; seconds that are worth measuring."""
TARGETS: Any = SimpleNamespace(targets=("a", "b"))
SPACES = (" ", "\n", "\n\n ", "\t\n", " \n")
QUOTES = ('"', '\\"', '"a', "'", '"""', "`", "/* ", "//", "a\n//", "\\")
BRACKETS = ("(", "[", "{", "<", "a[", "a [ ", "a(", "([{", ")", "]")


def python(entry: str, stub: str = "", language: str = "python") -> Reader:
    return partial(extract.program, Task("t", "p", (), entry, stub=stub, language=language))


def rollout(text: str) -> Rollout:
    completion = Completion(text, (1,), (0.0,), "stop", (0,))
    task = Task("t", "p", (), "f", language="verilog")
    return Rollout(task, (Turn((1,), completion, text),), Score(0.0))


def row(*names: str, **fields: Any) -> Reader:
    """Reads a row of which these fields are the text."""
    given = {"prompt": "", "entry_point": "f", **fields}
    return lambda text: jsonl.task_of(Row(given | dict.fromkeys(names, text), "the request"))


def bench(text: str) -> Any:
    return SimpleNamespace(stdout=text.encode("latin-1", "replace"))


def table(text: str) -> None:
    is_harmless([text])


def tagged(text: str) -> float:
    return format.tagged(f"<think>{text}</think><answer>{text}</answer>", "think")


def cell(text: str) -> object:
    run = SimpleNamespace(execution=Execution(Verdict.PASS), files={RESULTS: text.encode()})
    return responses.jupyter_answer(run, 10_000)  # type: ignore[arg-type]


def compared(check: Callable[[str, str], object]) -> Reader:
    return lambda text: check(text, text + "1")


FENCED = ("```\n", "```python\nx\n", "    ```\n", "x ``` y\n", "def g():\n    pass\n", "a = 1\n")
VERILOG = (*SPACES, *QUOTES, *BRACKETS, "module m@;\nendmodule ", "module m@; m@' x; endmodule\n",
           "module a;", "`endif ", "a #(", "a b[", "a.b ", "disable a;", "`define a@ b\n",
           "task ", "function a ", "begin : a ", "wire [", "reg [a]", "input wire ")  # fmt: skip
READERS: dict[str, tuple[Reader, tuple[str, ...]]] = {
    "a reply in Python": (python("f"), (*SPACES, *QUOTES, *BRACKETS, *FENCED, "@a\n")),
    "a reply that continues a stub": (python("f", "def f(x):\n"), (*SPACES, *QUOTES, *FENCED)),
    "a reply in JavaScript": (python("f", "function f(", "javascript"), (*FENCED, "function ")),
    "a reply in Verilog": (python("f", "", "verilog"), (*SPACES, *QUOTES, *FENCED)),
    **{f"a reply in {one}": (python("f", "", one), (*QUOTES, "```\n", "f(", "int f("))
       for one in ("cpp", "go", "java", "rust")},
    "a program that reads": (python(""), (*SPACES, *FENCED, "f(", "input(", "f = f\n")),
    "thoughts": (thoughts.answer, (*SPACES, "<think>", "</think>", "<think>\n", "<|channel|>",
                 "<|channel|>analysis", "analysis", "[THINK]", "```", "</s>", "</s> ", "<")),
    "a program with a main": (lambda text: language_named("rust").apart(text, "fn main(", "f"),
                              (*SPACES, *QUOTES, "fn main(\n", "a ", "a b", 'r#"', "::")),
    "a final answer": (partial(final_answer, whole=False), (*SPACES, *BRACKETS, "1", "1,", "1/ ",
                       "answer", "answer is ", "answer:", "\\boxed{", "####", ". ", "-$")),
    "tests of Go": (language_named("go").with_imports, (*SPACES, *QUOTES, *BRACKETS, "\nimport (",
                    'import "', "fmt.", "package main\n")),
    "a driven program in Java": (lambda text: language_named("java").drive(text, "f"),
                               (*BRACKETS, *SPACES, "import ", "import a;\n", "int f() {}")),
    "a program in JavaScript that exits": (language_named("javascript").without_exit,
                                           (*SPACES, "process.exit()\n", "process.exit(")),
    "a program in q that exits": (language_named("q").without_exit, (*SPACES, "exit 0;", "\\\\\n")),
    "a design's modules": (partial(verilog_screen.used, design="m0"), VERILOG),
    "a design": (partial(verilog_screen.refusal, bench="", design="m0"), VERILOG),
    "a design without comments": (verilog_screen.without_comments, VERILOG),
    "a client's test bench": (unwrap(verilog_screen.names_of), VERILOG),
    "a bench's samples": (lambda text: test_bench.explained(text, "1 | 1", "1 | 0"), (*VERILOG,
                          '$display("@SAMPLE', '$display("@SAMPLE" ', "$display( ")),
    "what a bench prints": (lambda text: test_bench.believed(rtllm.SUMMARY, bench(text)), (*SPACES,
                            "test summary: ", "1", "1/", "test summary: 1/1 tests passed")),
    "a design of several files": (partial(harness.files_of, TARGETS),
                                  (*SPACES, "// file:", "\n// file: a", "//")),
    "tags of a reply": (tagged, (*SPACES, "<", "x ", "</think", "<answer", "<answer>")),
    "a design's quality": (lambda text: quality.quality(rollout(text)), VERILOG),
    "what a linter gets": (lint.unsilenced, (*VERILOG, "` ", "`verilator_config ")),
    "what a linter says": (lambda text: tools.warnings(Execution(Verdict.PASS, stderr=text)),
                           (*SPACES, "%Warning-", "a warning", "warning:")),
    "a model's score": (reasoning.parsed, (*BRACKETS, '{"score"', '{"score":1}', '"score"')),
    "a traceback": (NAMES_ERROR.findall, (*SPACES, "Error", "a.Error", "\nthread ", "Exception")),
    "starter code": (lambda text: cases.task_of_cases("t", "", cases.Cases(["1"], ["1"], True),
                     starter=text), (*SPACES, "class Solution\n", "\nclass Solution\n def a",
                     "class Solution\n def a( ", "def f(")),
    "the first block of a text": (cases.first_block, (*SPACES, "```\n", "```a\n", "\n```")),
    "a client's assert": (row("tests", tests=[]), SPACES),
    "a client's test": (row("test"), (*SPACES, *QUOTES, *BRACKETS)),
    "a client's chain of conditions": (lambda text: row("test")(f"if a: pass\n{text}"),
                                       ("elif a: pass\n", "elif f(1) == @: pass\n")),
    "a client's doctest": (is_doctest, (*SPACES, ">>> ", "\n>>>")),
    "a client's exchange": (lambda text: jsonl.task_of(Row({"prompt": "", "exchanges": [
                            {"stdin": text, "stdout": text}]}, "")), (*SPACES, "1.", "1.1 ", "-1")),
    "code of a task": (task_code.looks_at_identity, (*SPACES, *BRACKETS[:3], " is ", "é")),
    "a table": (lambda text: table(f"assert f({text!r}) == 1\n{text}"), (*SPACES, *BRACKETS[:3],
                "assert f(1)\n", "f(1)", "x = 1\n", "1, ", "é")),
    "files in a test": (lambda text: [one.search(text) for one in (USES_FILES, RUNS_FILES, NUMERIC,
                        ELSEWHERE, MENTIONS_FILES)], (*SPACES, "os.", "os.path.", "open(", "np.")),
    "a client's language": (lambda text: suggest(text, ["python", "java"]), ("a", "python", "_")),
    "a worker's report": (lambda text: parse_report(text.encode()), (*BRACKETS, "1", "[1,")),
    "a frame": (lambda text: codec.loads(text.encode()), (*BRACKETS, '"a', "1", "[1,", '{"a":')),
    "cells of a notebook": (cell, (*SPACES, "{}\n", '{"stdout":"', *BRACKETS)),
    "a program's syntax": (lambda text: unwrap(syntax_of)(f"int a = {text}1;", "cpp"),
                           (*SPACES, "(", "a(", "{", "1 + ", "-", "[](){ return ")),
    "a text for a terminal": (printable, (*SPACES, "\x1b", "é", "\udc80")),
    **{f"output, compared by {name}": (compared(check), (*SPACES, "1", "1 ", "1.5 ", "a "))
       for name, check in {**CHECKERS, "close": close, "difference": difference}.items()},
}  # fmt: skip


def repeated(unit: str, length: int) -> str:
    """A unit again and again; `@` is a number that grows, `@'` the next one."""
    count = length // len(unit)
    if "@" not in unit:
        return unit * count
    return "".join(unit.replace("@'", str(at + 1)).replace("@", str(at)) for at in range(count))


def seconds(reader: Reader, text: str) -> float:
    """CPU time."""
    start = time.process_time()
    with suppress(UserError, LeftOutError, ValueError, RecursionError, CodecError):
        reader(text)
    return time.process_time() - start


def growth(reader: Reader, unit: str) -> float:
    """How often twice the text takes the time, at the first length that is worth measuring, or at
    twice that if it is less there (a cache that overflows does so once); 0 where even the longest
    is read at once.
    """
    length = SMALL
    while (once := seconds(reader, repeated(unit, length))) < ENOUGH:
        if (length := 2 * length) > LARGE:
            return 0.0
    twice = seconds(reader, repeated(unit, 2 * length))
    if twice <= MOST * once:
        return twice / once
    return min(twice / once, seconds(reader, repeated(unit, 4 * length)) / twice)


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_twice_the_text_takes_at_most_two_and_a_half_times_the_time(name: str) -> None:
    reader, units = READERS[name]
    gc.disable()  # it walks all objects again and again while a text is parsed
    try:
        slow = [unit for unit in units
                if all(growth(reader, unit) > MOST for _ in range(ROUNDS))]  # fmt: skip
    finally:
        gc.enable()
    assert slow == [], json.dumps(slow)
