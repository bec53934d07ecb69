"""MultiPL-E: MBPP's tasks as stubs to complete, in several languages (arXiv:2208.08227)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from assay.tasks import humaneval_x, task_set
from assay.tasks.python_source import around
from assay.tasks.rows import LeftOutError, PublicSet, Row, usable_tasks
from assay.types import Check, OwnTests, Task

SPLITS = {"python": "py", "cpp": "cpp", "go": "go", "java": "java", "javascript": "js",
          "rust": "rs", "typescript": "ts"}  # fmt: skip
FILE, HUB = "multipl_e/mbpp-{}-reworded.json", "nuprl/MultiPL-E"
MBPP = PublicSet("multipl_e_mbpp", FILE, HUB, "mbpp-{}", SPLITS)
CALLED = re.compile(
    r"^[ \t]*check\((\w+)\)|\bcandidate :?= (\w+)|^[ \t]*assert\((\w+)\(", re.MULTILINE
)
TUPLES = re.compile(r"^import org\.javatuples\.\*;\n", re.MULTILINE)
"""A line of every stub in Java; the package is none of Java's own."""
IMPORTS = re.compile(r"^(?:#include|import)\b.*\n", re.MULTILINE)
"""Lines of stubs that their tests need too."""
NEEDS_TUPLES = re.compile(r"\b(?:Unit|Pair|Triplet|Quartet|Quintet|Sextet|Septet|Octet)\b")
SCRIPT = ("\nconsole.", "\nconst assert", "\ndeclare var", "\nfunction test(")
STOPS = humaneval_x.STOPS | {"java": ("\n    public static void main",)}
STOPS |= {"javascript": SCRIPT, "typescript": SCRIPT}
"""Where a completion ends that closes its function itself."""


@task_set
def multipl_e_mbpp(split: str = "python") -> Iterator[Task]:
    """MultiPL-E's MBPP in python or six other languages (arXiv:2208.08227)."""
    return usable_tasks(MBPP.rows(split), task_of)


def task_of(row: Row) -> Task:
    """A row with `name`, `prompt`, `tests` and `stop_tokens`.

    Raises LeftOutError for a row whose tests call nothing, DataError for a malformed one.
    """
    language, prompt, tests = row.language(), TUPLES.sub("", row.text("prompt")), row.text("tests")
    match = CALLED.search(tests)
    if match is None:
        raise LeftOutError("without tests")
    if language != "python":
        if language not in STOPS:
            raise LeftOutError(f"in {language}, whose tests cannot be run")
        check = own_tests(language, prompt, tests)
        stop, name, function = STOPS[language], row.text("name"), match[match.lastindex or 0]
        return Task(name, prompt, (check,), function, language, stub=prompt, stop=stop)
    return Task(
        id=row.text("name"),
        prompt=prompt,
        checks=(Check(tests),),
        entry_point=match[1],
        stub=prompt,
        setup=around(prompt, row, "prompt", match[1]),
        stop=row.texts("stop_tokens"),
    )


def own_tests(language: str, prompt: str, tests: str) -> OwnTests:
    """The tests of a row, after a completion that has closed its function. In Java they are a class
    that inherits from the program's. Raises LeftOutError where they need a package.
    """
    if language == "go":
        return humaneval_x.go_tests(tests)
    if language == "java":
        if NEEDS_TUPLES.search(prompt + tests):
            raise LeftOutError("that need packages that Java does not bring")
        tests = f"class Main extends Problem {{{tests.partition('}')[2]}"
    return OwnTests(tests.removeprefix("}"), "".join(IMPORTS.findall(prompt)))
