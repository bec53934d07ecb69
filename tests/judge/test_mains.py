"""Replies with a main, tests and prose of their own, in the six languages of HumanEval-X."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from assay.extract import program
from assay.judge import Job
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
TOOLS = {"cpp": "g++", "go": "go", "java": "javac", "rust": "rustc", "javascript": "node"}
PARTS = re.split(r"^== (.*)\n", (Path(__file__).parent / "mains.txt").read_text(), flags=re.M)[1:]
REPLIES = list(zip(PARTS[::2], PARTS[1::2], strict=True))


def tasks(language: str) -> list[Task]:
    """The task of HumanEval-X, and one of calls."""
    stub, test = ROWS[language]
    row = {"task_id": f"{language}/0", "prompt": stub, "declaration": stub,
           "canonical_solution": "", "test": test}  # fmt: skip
    tested = task_of(Row(row, "row 1"), language)
    return [tested, Task("calls", "Add.", (Call("[3, 4]", "7"),), "add", language, stub=stub)]


@pytest.mark.parametrize("language", ROWS)
def test_a_right_function_passes_whatever_tries_it(language: str) -> None:
    if language in TOOLS and not shutil.which(TOOLS[language]):
        pytest.skip(f"needs {TOOLS[language]}")
    replies = [(name, reply) for name, reply in REPLIES if name.split()[0] == language]
    jobs = [Job(task, program(task, reply)) for _, reply in replies for task in tasks(language)]
    verdicts = judge_all(jobs)
    names = [name for name, _ in replies for _ in range(2)]
    assert len(names) == 6
    for name, job, run in zip(names, jobs, verdicts, strict=True):
        passes = run.verdict is Verdict.PASS
        assert passes is (" wrong, " not in name), f"{name}: {run.detail}\n{job.program}"
