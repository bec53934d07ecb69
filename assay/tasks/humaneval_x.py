"""HumanEval-X: HumanEval's tasks in six languages, with tests in each (arXiv:2303.17568)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from assay.languages import DRIVERS
from assay.lines import source_lines
from assay.tasks import require_split, task_set
from assay.tasks.humaneval import task_of as python_task
from assay.tasks.rows import LeftOutError, PublicSet, Row, usable_tasks
from assay.types import OwnTests, Task

HEADERS = ("stdlib.h", "math.h", "stdio.h", "algorithm", "climits", "cstring", "iostream", "map",
           "string", "vector")  # fmt: skip
INCLUDES = "".join(f"#include <{name}>\n" for name in HEADERS) + "using namespace std;\n"
IMPORTS = "import java.util.*;\nimport java.lang.*;\n"
RAISES = (DRIVERS / "javascript_tests.js").read_text()
TESTER = (DRIVERS / "go_tests.go").read_text()
CRATES = re.compile(r"^use (?:rand|regex|md5)\b.*;$", re.MULTILINE)
"""Lines of every task's stub; the packages are none of Rust's own."""
NEEDS_CRATE = re.compile(r"\brand::|\bRegex\b|\bmd5::")
FUNCTION = re.compile(r"(\w+)(?:<[^()]*>)?\s*(?:=\s*(?:function\s*)?)?\(")
STOPS = {
    "cpp": ("\nint main",), "go": ("\nfunc main", "\nfunc Test"), "java": ("\npublic class Main",),
    "javascript": ("\nconsole.", "\nconst test"), "rust": ("\nfn main", "\n#[cfg(test)]"),
}  # fmt: skip


def own_tests(before: str, row: Row) -> OwnTests:
    """In C++ a `main` that asserts, in Java a class `Main` beside the program's `Solution`, in
    JavaScript a function of `console.assert`, which only warns by itself; `before` them.
    """
    return OwnTests(row.text("test"), before)


def go_tests(test: str) -> OwnTests:
    """A test function in a file of its own, with its own imports."""
    name = re.search(r"func (Test\w+)", test)
    start = f"func main() {{ {name and name[1]}(new(tester)) }}\n"
    return OwnTests("", "", f"{TESTER}{test.replace('*testing.T', '*tester')}{start}")


def rust_tests(row: Row) -> OwnTests:
    """A module of test functions."""
    module = row.text("test").replace("#[cfg(test)]", "")
    names = re.findall(r"#\[test\]\s*fn (\w+)", module)
    module = re.sub(r"#\[test\]\s*fn", "pub fn", module)
    inside = re.search(r"mod (\w+)", module)
    calls = " ".join(f"{inside and inside[1]}::{name}();" for name in names)
    return OwnTests(f"{module}\nfn main() {{ {calls} }}\n")


TESTS: dict[str, Callable[[Row], OwnTests]] = {
    "cpp": partial(own_tests, INCLUDES), "java": partial(own_tests, IMPORTS),
    "javascript": partial(own_tests, RAISES), "rust": rust_tests,
    "go": lambda row: go_tests(row.text("test")),
}  # fmt: skip
SPLITS = ("python", *TESTS)


@task_set
def humaneval_x(split: str = "cpp") -> Iterator[Task]:
    """HumanEval-X: HumanEval in python, cpp, go, java, javascript or rust (arXiv:2303.17568)."""
    require_split("humaneval_x", split, SPLITS)
    short = {"javascript": "js"}.get(split, split)
    name = f"humaneval_x/humaneval_{short}.jsonl.gz"
    published = PublicSet("humaneval_x", name, "THUDM/humaneval-x", short, (split,))
    return usable_tasks(published.rows(split), partial(task_of, language=split))


def task_of(row: Row, language: str) -> Task:
    """A row with task_id, prompt, declaration, canonical_solution and test.

    Raises DataError where one is missing, LeftOutError where the task needs more than its language.
    """
    declared = row.text("declaration")
    heads = (line for line in reversed(source_lines(declared)) if line.rstrip()[-1:] in ("{", ":"))
    function = next(filter(None, map(FUNCTION.search, heads)), None)
    if function is None:
        raise row.wrong("'declaration' ends in no function")
    stub = row.text("prompt")
    if language == "python":
        return python_task(Row({**row.fields, "entry_point": function[1]}, row.where))
    if language == "rust":
        stub += CRATES.sub("", declared)
        if NEEDS_CRATE.search(row.text("canonical_solution") + row.text("test")):
            raise LeftOutError("that need packages that Rust does not bring")
    return Task(
        id=row.text("task_id"),
        prompt=stub,
        checks=(TESTS[language](row),),
        entry_point=function[1],
        language=language,
        stub=stub,
        reference=stub + row.text("canonical_solution"),
        stop=STOPS[language],
    )
