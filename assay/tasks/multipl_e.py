"""MultiPL-E: MBPP's tasks as stubs to complete, in several languages (arXiv:2208.08227)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from assay.tasks import task_set
from assay.tasks.python_source import around
from assay.tasks.rows import LeftOutError, PublicSet, Row, kept
from assay.types import Check, OwnTests, Task

SPLITS = {"python": "py", "cpp": "cpp", "javascript": "js", "rust": "rs", "typescript": "ts"}
FILE, HUB = "multipl_e/mbpp-{}-reworded.json", "nuprl/MultiPL-E"
MBPP = PublicSet("multipl_e_mbpp", FILE, HUB, "mbpp-{}", SPLITS)
CALLED = re.compile(r"^[ \t]*check\((\w+)\)|\bcandidate = (\w+)", re.MULTILINE)
SCRIPT = ("\nconsole.", "\nconst assert", "\ndeclare var", "\nfunction test(")
STOPS = {"cpp": ("\nint main",), "rust": ("\nfn main",), "javascript": SCRIPT, "typescript": SCRIPT}
"""Where a completion ends that closes its function itself."""


@task_set
def multipl_e_mbpp(split: str = "python") -> Iterator[Task]:
    """MultiPL-E's MBPP in python, cpp, javascript, rust or typescript (arXiv:2208.08227)."""
    return kept(MBPP.rows(split), task_of)


def task_of(row: Row) -> Task:
    """A row with `name`, `prompt`, `tests` and `stop_tokens`.

    Raises LeftOutError for a row whose tests call nothing, DataError for a malformed one.
    """
    language, prompt, tests = row.language(), row.text("prompt"), row.text("tests")
    called = CALLED.search(tests)
    if called is None:
        raise LeftOutError("without tests")
    if language != "python":
        if language not in STOPS:
            raise LeftOutError(f"in {language}, whose tests cannot be run")
        own = OwnTests(tests.removeprefix("}"))  # the completion has closed its function
        stop, name = STOPS[language], row.text("name")
        return Task(name, prompt, (own,), called[2], language, stub=prompt, stop=stop)
    return Task(
        id=row.text("name"),
        prompt=prompt,
        checks=(Check(tests),),
        entry_point=called[1],
        stub=prompt,
        setup=around(prompt, row, "prompt", called[1]),
        stop=row.texts("stop_tokens"),
    )
