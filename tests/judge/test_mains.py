"""Replies with a main, tests and prose of their own, in the languages of HumanEval-X and MultiPL-E:
to tasks of both sets, and to calls.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from assay.extract import program
from assay.judge import Job
from assay.tasks import multipl_e
from assay.tasks.humaneval_x import task_of
from assay.tasks.rows import Row
from assay.types import Call, Task, Verdict
from tests.judge.opened import judge_all

ROWS = {
    "cpp": ("int add(int a, int b){\n",
            "#undef NDEBUG\n#include<assert.h>\nint main(){\n    assert (add(3, 4) == 7);\n}\n"),
    "go": ("func add(a int, b int) int {\n",
           "func TestAdd(t *testing.T) {\n    assert := assert.New(t)\n"
           "    assert.Equal(7, add(3, 4))\n}\n"),
    "java": ("class Solution {\n    public int add(int a, int b) {\n",
             "public class Main {\n    public static void main(String[] args) {\n"
             "        if (new Solution().add(3, 4) != 7) throw new AssertionError();\n    }\n}\n"),
    "rust": ("fn add(a: i32, b: i32) -> i32 {\n",
             "#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n    fn test_add() {\n"
             "        assert_eq!(add(3, 4), 7);\n    }\n}\n"),
    "javascript": ("const add = (a, b) => {\n",
                   "const testAdd = () => {\n  console.assert(add(3, 4) === 7)\n}\n\ntestAdd()\n"),
    "python": ("def add(a, b):\n", "def check(candidate):\n    assert candidate(3, 4) == 7\n"),
}  # fmt: skip
MULTIPL_E = {
    "cpp": ("#include<assert.h>\n#include<bits/stdc++.h>\n// Add.\nlong add(long a, long b) {\n",
            "}\nint main() {\n    auto candidate = add;\n"
            "    assert(candidate((3), (4)) == (7));\n}\n"),
    "go": ('package add_test\n\nimport (\n    "testing"\n    "fmt"\n)\n\n// Add.\n'
           "func add(a int, b int) int {\n",
           "func TestAdd(t *testing.T) {\n  candidate := add\n\ttype test struct {\n"
           "\t\tactual   interface{}\n\t\texpected interface{}\n\t}\n   tests := []test{\n"
           "     { actual: candidate(3, 4), expected: 7 },\n   }\n\n\tfor i, tc := range tests {\n"
           '\t\tt.Run(fmt.Sprintf("test num % d", i), func(t *testing.T) {\n'
           '\t\t\tif fmt.Sprintf("%v", tc.actual) != fmt.Sprintf("%v", tc.expected) {\n'
           "\t\t\t\tt.Errorf(\"expected '%s', got '%s'\", tc.expected, tc.actual)\n"
           "\t\t\t}\n\t\t})\n\t}\n}\n"),
    "java": ("import java.util.*;\nimport org.javatuples.*;\nclass Problem {\n    // Add.\n"
             "    public static long add(long a, long b) {\n",
             "    }\n    public static void main(String[] args) {\n"
             "    assert(add((3), (4)) == (7l));\n    }\n\n}\n"),
    "rust": ("/// Add.\nfn add(a: isize, b: isize) -> isize {\n",
             "}\n\nfn main() {\n    let candidate = add;\n"
             "    assert_eq!(candidate(3, 4), 7);\n}\n"),
    "javascript": ("//Add.\nfunction add(a, b){\n",
                   "const assert = require('node:assert');\n\nfunction test() {\n"
                   "  let candidate = add;\n  assert.deepEqual(candidate(3, 4),7);\n}\n\ntest();"),
    "python": ("def add(a: int, b: int) -> int:\n",
               "def check(candidate):\n    assert candidate(3, 4) == 7\n\n"
               "def test_check():\n    check(add)\n\ntest_check()\n"),
}  # fmt: skip
TOOLS = {"cpp": "g++", "go": "go", "java": "javac", "rust": "rustc", "javascript": "node"}
COMPILED = {"cpp", "java", "rust"}
PARTS = re.split(r"^== (.*)\n", (Path(__file__).parent / "mains.txt").read_text(), flags=re.M)[1:]
REPLIES = list(zip(PARTS[::2], PARTS[1::2], strict=True))


def tasks(language: str) -> list[Task]:
    """The task of HumanEval-X, one of calls, and the task of MultiPL-E."""
    stub, test = ROWS[language]
    row = {"task_id": f"{language}/0", "prompt": stub, "declaration": stub,
           "canonical_solution": "", "test": test}  # fmt: skip
    tested = task_of(Row(row, "row 1"), language)
    called = Task("calls", "Add.", (Call("[3, 4]", "7"),), "add", language, stub=stub)
    prompt, tests = MULTIPL_E[language]
    named = {"go": "go_test.go"}.get(language, language)
    fields = {"name": "add", "language": named, "prompt": prompt, "tests": tests, "stop_tokens": []}
    return [tested, called, multipl_e.task_of(Row(fields, "row 1"))]


def asked(task: Task, reply: str) -> str:
    """A reply to this task: MultiPL-E names the class in Java otherwise, and has static methods."""
    if (task.language, task.id) != ("java", "add"):
        return reply
    return reply.replace("Solution", "Problem").replace("public int add", "public static int add")


@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["one task", "every task"]
)
@pytest.mark.parametrize(
    "language", [pytest.param(name, marks=[pytest.mark.long] * (name in COMPILED)) for name in ROWS]
)
def test_a_right_function_passes_whatever_tries_it(language: str, every: bool) -> None:
    """Each reply to one of the three tasks in turn, or to all of them."""
    if language in TOOLS and not shutil.which(TOOLS[language]):
        pytest.skip(f"needs {TOOLS[language]}")
    replies = [(name, reply) for name, reply in REPLIES if name.split()[0] == language]
    all_tasks = tasks(language)
    asking = [
        (f"{name} ({task.id})", Job(task, program(task, asked(task, reply))))
        for turn, (name, reply) in enumerate(replies)
        for task in (all_tasks if every else [all_tasks[turn % 3]])
    ]
    assert len(asking) >= (9 if every else 3)
    verdicts = judge_all([job for _, job in asking])
    for (name, job), run in zip(asking, verdicts, strict=True):
        passes = run.verdict is Verdict.PASS
        assert passes is (" wrong, " not in name), f"{name}: {run.detail}\n{job.program}"
