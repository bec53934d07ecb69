"""Rows of published sets in a file of your own: those of verl are read, and others are refused by
what they are.
"""

from __future__ import annotations

import ast
import builtins
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from assay.tasks.cases import cases_of, task_of_cases
from assay.tasks.python_source import parsed
from assay.tasks.rows import LeftOutError, Row
from assay.types import Task

LOADERS = {
    ("declaration", "canonical_solution"): "humaneval_x",
    ("stop_tokens", "tests"): "multipl_e_mbpp",
    ("question_content",): "livecodebench",
    ("question", "input_output"): "apps",
    ("private_tests", "solutions"): "code_contests",
    ("verification_info",): "open_r1",
    ("responses_create_params",): "nemo_gym",
    ("instruct_prompt", "code_prompt"): "bigcodebench",
    ("question", "answer"): "gsm8k",
    ("problem", "answer"): "math",
}
"""The task set whose rows have these fields. Those without a `prompt` have none in that set."""
WITHOUT_PROMPT = ("question", "problem")
PAIR = {"chosen", "rejected"}


def refuse(row: Row) -> None:
    """Raises DataError, with how to read it, for a row that another task set reads."""
    for fields, name in LOADERS.items():
        has_prompt = fields[0] in WITHOUT_PROMPT and "prompt" in row.fields
        if row.fields.keys() >= {*fields} and not has_prompt:
            file = row.where.rpartition(", ")[0] or "FILE"
            raise row.wrong(f"a row of {name}; read it as the task set {name}:{file}")


def is_verl(row: Row) -> bool:
    """Whether it is a row of verl's, as DAPO's sets have them too."""
    return isinstance(row.fields.get("reward_model"), Mapping) and "prompt" in row.fields


def of_verl(row: Row) -> Row | Task:
    """What a row of verl's is: the same row in our own fields, or its task where its
    `ground_truth` holds test cases. Raises DataError where it holds neither these nor an answer.
    """
    truth = row.table("reward_model").fields.get("ground_truth")
    answer: object = truth
    with suppress(ValueError, RecursionError, TypeError):
        answer = json.loads(truth) if isinstance(truth, str) else truth
    name = {"task_id": row.fields.get("task_id", row.place), "prompt": row.fields["prompt"]}
    asserts = answer.get("assert_case") if isinstance(answer, Mapping) else answer
    if isinstance(asserts, list) and asserts:
        plain = Row({**name, "tests": asserts}, row.where)
        return replace(
            plain, fields={**plain.fields, "entry_point": called_by(plain.texts("tests"), plain)}
        )
    if isinstance(answer, Mapping):
        messages = row.messages("prompt")
        try:
            task = task_of_cases(str(name["task_id"]), messages[-1].content, cases_of(answer))
        except LeftOutError as reason:
            raise row.wrong(f"a row of verl {reason}; give tests of ours (docs/data.md)") from None
        return replace(task, messages=messages)
    if not isinstance(truth, str | int | float) or truth == "":
        raise row.wrong("a row of verl without a 'ground_truth' of text; add it")
    return Row({**name, "expected_answer": str(truth)}, row.where)


def called_by(asserts: Sequence[str], row: Row) -> str:
    """The first function that the asserts call and that is not a built-in."""
    for node in [
        node for source in asserts for node in ast.walk(parsed(source, row, "assert_case"))
    ]:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and not hasattr(builtins, node.func.id)
        ):
            return node.func.id
    raise row.wrong("no assert calls a function of the program's; give asserts that do")
