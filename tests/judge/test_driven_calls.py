"""Functions in other languages are called with JSON by a driver, and compared in our process."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from typing import Any

import pytest

from assay.check.attacks import attacks_on
from assay.judge import Job, judge_all
from assay.judge.codec import Packer
from assay.judge.kinds.driven_calls import ANSWERS, decide, plain_call
from assay.languages import DRIVERS, language_named
from assay.sandbox.program import Ended, Result
from assay.tasks import task_from_dict
from assay.types import Call, Cause, Execution, Task, Verdict
from tests.judge.test_languages import DETECTS_MODULES, INSTALLED
from tests.judge.typed import TYPED

SHIFT = task_from_dict(
    {"language": "javascript", "entry_point": "f", "inputs": [[[1, 2], 3], [[], 1]],
     "expected": [[4, 5], []], "reference": "const f = (xs, n) => xs.map((x) => x + n)"}
)  # fmt: skip
needs_node = pytest.mark.skipif(not shutil.which("node"), reason="needs node")


def judged(*jobs: Job) -> list[Execution]:
    return judge_all(jobs, stop_early=False)


@needs_node
def test_a_function_of_javascript_passes_fails_raises_and_leaves_early() -> None:
    programs = {
        SHIFT.reference: (Verdict.PASS, 2, ""),
        "module.exports.f = (xs, n) => { console.log('[0]'); return xs.map((x) => x + n) }": (
            Verdict.PASS, 2, "",
        ),
        "const f = (xs) => xs": (
            Verdict.WRONG, 1, "call 1, f([1, 2], 3) gives [1, 2], not [4, 5]",
        ),
        "const f = (xs) => { if (xs.length) return [4, 5]; throw new TypeError('empty') }": (
            Verdict.ERROR, 1, "TypeError: empty at call 2, f([], 1)",
        ),
        "process.exit(0)": (Verdict.ERROR, 0, "it exited after 0 of 2 calls"),
        "const g = 1": (Verdict.ERROR, 0, "ReferenceError: f is not defined"),
    }  # fmt: skip
    for execution, (verdict, passed, detail) in zip(
        judged(*(Job(SHIFT, program) for program in programs)), programs.values(), strict=True
    ):
        assert (execution.verdict, execution.passed, execution.total) == (verdict, passed, 2)
        assert detail in execution.detail
        assert not execution.forgeable


ADDS = "(xs, n) => xs.map((x) => x + n)"
FORMS = (
    f"const text = `\nimport fs from 'fs'\n`;\nexport const f = {ADDS};\nexports.g = f;",
    "async function f(xs, n) { await null; return xs.map((x) => x + n) }",
    f"module.exports = {ADDS}",
    f"module.exports = {{ g: {ADDS},\n  f(xs, n) {{ return this.g(xs, n) }} }}",
    f"class Solution {{}}\nmodule.exports = {{ f: {ADDS} }}",
    "class Solution { static f(xs, n) { return xs.map((x) => x + n) } }",
    "class Solution { add(x, n) { return x + n }\n"
    "  f(xs, n) { return xs.map((x) => this.add(x, n)) } }",
)
MODULES = (
    f"#!/usr/bin/env node\nimport fs, {{\n  existsSync,\n}} from 'fs';\nexport const f = {ADDS};",
    f"import * as path from 'node:path'\nmodule.exports = {{ f: {ADDS} }}",
    "import { createRequire } from 'module';\nconst require = createRequire(import.meta.url);\n"
    f"const f = {ADDS}\nexport default f;",
)


@needs_node
@pytest.mark.parametrize(
    "language", ["javascript", pytest.param("typescript", marks=pytest.mark.long)]
)
def test_a_function_of_javascript_is_called_however_it_is_defined(language: str) -> None:
    if language not in INSTALLED:
        pytest.skip(f"needs {language}")
    asked, forms = replace(SHIFT, language=language), list(FORMS)
    if language == "javascript":
        node = re.findall(r"\d+", language_named(language).versions()[0])
        forms += MODULES if tuple(map(int, node[:2])) >= DETECTS_MODULES else []
    right = judged(*(Job(asked, program) for program in forms))
    assert [run.detail for run in right if run.verdict is not Verdict.PASS] == []
    wrong = judged(*(Job(asked, program.replace("x + n", "x - n")) for program in forms))
    assert {run.verdict for run in wrong} == {Verdict.WRONG}
    (none,) = judged(Job(asked, "module.exports = { g: 1 };"))
    assert "f is not defined" in none.detail


EXACT = (
    "9007199254740993", '{"float":"nan"}', '{"float":"-inf"}',
    '"a\\u0001\\"\u00e9 NaN 12345678901234567"',
    '{"dict":["a",1]}', '{"tuple":[1,2.5]}', "1e22", "5e-324", "0.1234567890123456789", "null",
    '[[],[true,false]]',
)  # fmt: skip


@needs_node
def test_values_come_back_as_they_went() -> None:
    calls = tuple(Call(f"[{value}]", value) for value in EXACT)
    task = Task("same", "", calls, "f", language="javascript")
    one, less = judged(Job(task, "const f = (x) => x"), Job(task, "const f = (x) => Number(x)"))
    assert one.verdict is Verdict.PASS, one.detail
    assert less.verdict is Verdict.WRONG
    assert less.detail == (
        "call 1, f(9007199254740993) gives 9007199254740992, not 9007199254740993"
    )


def answered(data: bytes, expected: Any = (1, 2), tolerance: float = 0.0) -> tuple[Verdict, int]:
    calls = [plain_call(Call("[0]", Packer().text(value), tolerance)) for value in expected]
    decision = decide(Result(Ended.EXITED, files={ANSWERS: data}), calls, "f")
    assert decision.total == len(calls)
    return decision.verdict, decision.passed


SUCCESSORS = {
    "javascript": "function {}(x) {{ return x + 1 }}", "ruby": "def {}(x) x + 1 end",
    "go": "package main\nfunc {}(x int) int {{ return x + 1 }}",
}  # fmt: skip


@pytest.mark.parametrize("language", sorted(SUCCESSORS.keys() & set(INSTALLED)))
def test_a_function_may_be_called_as_a_variable_of_its_driver_is(language: str) -> None:
    source = (DRIVERS / language_named(language).driver).read_text()
    names = [
        name for name in ("answers", "bound", "called", "calls", "fs", "given", "owner", "show",
                          "text", "tokens")
        if re.search(rf"\b{name}\b", source)
    ]  # fmt: skip
    tasks = [Task(name, "", (Call("[1]", "2"),), name, language=language) for name in names]
    jobs = [Job(task, SUCCESSORS[language].format(task.id)) for task in tasks]
    ended = judge_all(jobs)
    assert {one.verdict for one in ended} == {Verdict.PASS}, [one.detail for one in ended]


@pytest.mark.parametrize(
    "data",
    [b"[1]\n[2]\n[3]\n", b"[1]\n[2]", b"[1]\n2\n", b"[1]\n[2, 2]\n", b'[1]\n{"raised": 1}\n',
     b'[1]\n{"raised": "", "more": 1}\n', b"[1]\n[" + b"[" * 90_000 + b"\n", b"[1]\n\xff\n",
     b"[1]\n" + b"[" * 500 + b"]" * 500 + b"\n[3]\n"],
    ids=range(9),
)  # fmt: skip
def test_malformed_answers_are_forbidden(data: bytes) -> None:
    assert answered(data) == (Verdict.FORBIDDEN, 0)


def test_answers_are_compared_as_those_of_python() -> None:
    assert answered(b"[1]\n[2.0]\n") == (Verdict.PASS, 2)
    assert answered(b"[1]\n") == (Verdict.ERROR, 1)
    assert answered(b"[2]\n[2]\n") == (Verdict.WRONG, 1)
    assert answered(b"[1]\n[" + b"1" * 9000 + b"]\n") == (Verdict.WRONG, 1)
    long = int("12" * 4500)
    assert answered(b"[1]\n[" + b"12" * 4500 + b"]\n", (1, long)) == (Verdict.PASS, 2)
    assert answered(b"[1]\n" + b"[" * 900 + b"]" * 900 + b"\n") == (Verdict.WRONG, 1)
    assert answered(b"[3]\n[NaN]\n", (3.0000001, float("nan")), 1e-6) == (Verdict.PASS, 2)
    assert answered(b"[NaN]\n[null]\n") == (Verdict.WRONG, 0)
    assert answered(b"[1]\n[2]" + b" " * (1 << 21) + b"\n") == (Verdict.OUTPUT, 0)


def test_what_only_python_has_is_refused() -> None:
    for arguments, expected in (
        ("[1]", None),
        ('[{"set":[1]}]', "1"),
        ("3", "1"),
        ('["\\ud800"]', "1"),
    ):
        task = Task(
            "t", "", (Call(arguments, expected),), "f", language="javascript", reference="f"
        )
        (refused,) = judged(Job(task, "f"))
        assert (refused.verdict, refused.cause) == (Verdict.UNJUDGED, Cause.TASK)
        assert "task 't', call 1: " in refused.detail
    plain = Task("t", "", (Call("[1]", "1"),), "f", language="javascript")
    for task in (
        replace(plain, checker="def check(*_): pass"),
        replace(plain, entry_point="A().f"),
    ):
        (refused,) = judged(Job(task, "f"))
        assert (refused.verdict, refused.cause) == (Verdict.UNJUDGED, Cause.TASK)


MIXED = [
    Call(
        '[[1,-2],"\u00e9\\n\\"",{"dict":["k",1.5]},true,2.5,null]',
        '["1\u00e9\\n\\"y1","-2\u00e9\\n\\"y1"]',
    ),
    Call('[[],"",{"dict":[]},false,0,3]', "[]"),
    Call('[[5],"",{"dict":[]},false,0,3]', '["5n0o"]'),
]
"""Of f(numbers, text, map, bool, float, number or nothing)."""
NUMBERS = ("1.5", "3", '{"float":"nan"}', '{"float":"-inf"}', "1e22", "5e-324")
NESTED = [
    Call(
        f"[{x},[[1,9007199254740993],[]]]",
        f'{{"tuple":[{x},[[1,9007199254740993],[]],{{"dict":[1,"a"]}}]}}',
    )
    for x in NUMBERS
]
RAISES = Call("[1.5,[]]", "1")
"""Of f(float, lists of numbers), which fails where there is none."""


@pytest.mark.long
@pytest.mark.parametrize("language", [name for name in TYPED if name in INSTALLED])
def test_a_language_with_types_takes_and_gives_values_of_all_of_them(language: str) -> None:
    task = Task(language, "", tuple(MIXED), "f", language=language)
    nested = replace(task, checks=(*NESTED, RAISES))
    mixed, raised = judged(
        *(Job(one, source) for one, source in zip((task, nested), TYPED[language], strict=True))
    )
    assert mixed.verdict is Verdict.PASS, mixed
    assert (raised.verdict, raised.passed, raised.total) == (Verdict.ERROR, 6, 7), raised
    assert re.search(r'empty "v" at call 7, f\(1.5, \[\]\)', raised.detail)


METHODS = {
    "cpp": (
        "struct Solution {\n  int f(const int &n) { return g(n); }\n"
        "  int g(int n) { return n + 1; }\n};\nint main() { return Solution().f(1); }",
        "class Solution {\n public:\n  virtual int f(int n) const { return n + 1; }\n};",
        "struct Solution { int f(int n); };\nint Solution::f(int n) { return n + 1; }",
        "struct Solution { int f(int n) { return 0; } };\nint f(int n) { return n + 1; }",
        "namespace adds {\nint f(int n) { return n + 1; }\n}\nusing namespace adds;",
    ),
    "java": (
        "interface Add { int f(int n); }\npublic class Adder implements Add {\n"
        "  public int f(int n) { return n + 1; }\n}",
        "class Main { int f(int n) { return n - 2; } }\n"
        "class Solution { int f(int n) { return n + 1; } }",
        "class List {} class Path {} class Type {}\n"
        "class Solution { int f(int n) { return n + 1; } }",
    ),
    "rust": (
        "struct Solution;\nimpl Solution {\n    fn f(n: i32) -> i32 { n + 1 }\n}",
        "struct Solution;\nimpl Solution { fn f(n: i32) -> i32 { 0 } }\n"
        "fn f(n: i32) -> i32 { n + 1 }",
    ),
}
"""Functions that answer a number with the next, in classes and namespaces."""


@pytest.mark.long
@pytest.mark.parametrize("language", [name for name in METHODS if name in INSTALLED])
def test_a_method_is_called_in_a_class_of_a_reply(language: str) -> None:
    task = Task("next", "", (Call("[1]", "2"), Call("[-5]", "-4")), "f", language=language)
    right = judged(*(Job(task, program) for program in METHODS[language]))
    assert [run.detail for run in right if run.verdict is not Verdict.PASS] == []
    wrong = judged(*(Job(task, code.replace("n + 1", "n - 1")) for code in METHODS[language]))
    assert {run.verdict for run in wrong} == {Verdict.WRONG}


DRIVEN = [name for name in INSTALLED if language_named(name).driver]


@pytest.mark.parametrize(
    "language",
    [name if name == "javascript" else pytest.param(name, marks=pytest.mark.long)
     for name in DRIVEN],
)  # fmt: skip
def test_a_constant_answer_passes_only_where_all_answers_are_equal(language: str) -> None:
    texts = ['"a\\n\\"\\u0001\\\\é"', '"b"', '"a\\n\\"\\u0001\\\\é"']
    calls = tuple(Call(f"[{number}]", text) for number, text in enumerate(texts))
    several = Task("several", "", calls, "f", language=language)
    equal = replace(several, checks=calls[::2])
    jobs = [Job(task, attacks_on(task)["constant"]) for task in (several, equal)]
    wrong, right = judged(*jobs)
    assert (wrong.verdict, wrong.passed, wrong.total) == (Verdict.WRONG, 2, 3), wrong
    assert (right.verdict, right.passed) == (Verdict.PASS, 2), right
