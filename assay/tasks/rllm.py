"""rLLM's rows: CodeContests, Codeforces, LeetCode, LiveCodeBench, TACO with tests in its shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from assay.tasks import kodcode, task_set
from assay.tasks.cases import (
    PRELUDE,
    cases_of,
    first_block,
    function_task,
    parsed_json,
    task_of_cases,
    with_prelude,
)
from assay.tasks.rows import LeftOutError, PublicSet, Row, usable_tasks
from assay.types import Check, Task

SETS = ("primeintellect", "taco", "lcbv5", "codeforces")
RLLM = PublicSet("rllm", "rllm/{}.jsonl", "agentica-org/DeepCoder-Preview-Dataset", "{}", SETS)
CHECKED = re.compile(r"^check\(Solution\(\)\.(\w+)\)\s*\Z", re.MULTILINE)


@task_set
def rllm(split: str = "codeforces") -> Iterator[Task]:
    """Rows of rLLM, as DeepCoder's data set has them: primeintellect, taco, lcbv5 or codeforces."""
    return usable_tasks(RLLM.rows(split), task_of)


def task_of(row: Row) -> Task:
    """A row with `problem` (or `question`) and `tests` (or `ground_truth`): a dict of lists, a list
    of dicts, or {"functional": a check}.

    Raises LeftOutError for a row without usable tests, DataError for a malformed one.
    """
    prompt = row.text("problem" if "problem" in row.fields else "question")
    task_id = f"rLLM/{row.fields.get('uid') or row.place}"
    source = row.text("data_source", default="")
    if source.startswith("swebench"):
        raise LeftOutError("whose task is a patch")
    if source.startswith("kodcode"):
        fields = {"question": prompt, "test": row.text("ground_truth"), "question_id": task_id}
        return kodcode.task_of(Row(fields, row.where))
    tests = parsed_json(row, "tests" if row.fields.get("tests") else "ground_truth")
    solutions = row.fields.get("solutions")
    reference = solutions[0] if isinstance(solutions, list) and solutions else solutions
    reference = first_block(reference) if isinstance(reference, str) and reference else None
    if isinstance(tests, Mapping) and isinstance(tests.get("functional"), str):
        return _functional(task_id, prompt, tests["functional"], reference)
    return task_of_cases(
        task_id,
        prompt,
        cases_of(tests),
        starter=row.text("starter_code", default=""),
        reference=reference,
    )


def _functional(task_id: str, prompt: str, source: str, reference: str | None) -> Task:
    """LeetCode's form: a `check(candidate)` that ends with its call on a method of Solution."""
    match = CHECKED.search(source)
    if match is None:
        raise LeftOutError("whose check does not end with check(Solution().method)")
    fields: dict[str, Any] = {"setup": PRELUDE, "reference": reference and with_prelude(reference)}
    return function_task(
        task_id,
        prompt,
        (Check(f"{source[: match.start()]}check(candidate)"),),
        entry_point=f"Solution().{match[1]}",
        starter=first_block(prompt) if "```" in prompt else "",
        **fields,
    )
