"""Rows of published sets in a file of your own: those of verl are read, and others are refused by
what they are.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from assay.judge.worker_messages import PROGRAM
from assay.tasks import nemo_gym, rllm
from assay.tasks.python_source import parsed
from assay.tasks.rows import LeftOutError, Row
from assay.types import Task

LOADERS = {
    ("declaration", "canonical_solution"): "humaneval_x",
    ("stop_tokens", "tests"): "multipl_e_mbpp",
    ("public_test_cases",): "livecodebench",
    ("question", "input_output", "problem_id"): "apps",
    ("question", "input_output"): "taco",
    ("description", "sample_io"): "apps",
    ("private_tests", "solutions"): "code_contests",
    ("verification_info",): "open_r1",
    ("official_tests",): "open_r1_codeforces",
    ("assertion", "plus_input"): "mbppplus",
    ("test", "test_list"): "mbppplus",
    ("plus_input",): "humanevalplus",
    ("completion", "query", "test"): "leetcode_dataset",
    ("question", "solution", "test"): "kodcode",
    ("categories", "harness"): "cvdp",
    ("fix_patch", "test_patch"): "multi_swe_bench",
    ("F2P", "P2P", "problem_statement"): "swe_polybench",
    ("FAIL_TO_PASS", "environment_setup_commit"): "swe_bench",
    ("FAIL_TO_PASS", "image_name", "test_patch"): "swe_rebench",
    ("FAIL_TO_PASS", "image_name"): "swe_smith",
    ("FAIL_TO_PASS", "problem_statement"): "swe_gym",
    ("instruct_prompt", "code_prompt"): "bigcodebench",
    ("question", "answer"): "gsm8k",
    ("problem", "answer"): "math",
    ("problem", "tests"): "rllm",
}
"""The task set whose rows have these fields. Where the first is in WITHOUT_PROMPT, its rows have
no `prompt`, and no list of texts as tests."""
WITHOUT_PROMPT = ("question", "problem")
PAIR = {"chosen", "rejected"}
TEST = re.compile(r"^\s*(?:assert\b|def test)", re.MULTILINE)


def refuse(row: Row) -> None:
    """Raises DataError, with how to read it, for a row that another task set reads."""
    tests = row.fields.get("tests")
    has_texts = isinstance(tests, list) and all(isinstance(test, str) for test in tests)
    for fields, name in LOADERS.items():
        is_ours = fields[0] in WITHOUT_PROMPT and ("prompt" in row.fields or has_texts)
        if row.fields.keys() >= {*fields} and not is_ours:
            file = row.where.rpartition(", ")[0] or "FILE"
            raise row.wrong(f"a row of {name}; read it as the task set {name}:{file}")
    if "responses_create_params" in row.fields:
        raise row.wrong(nemo_gym.how_to_read(row))


def is_verl(row: Row) -> bool:
    """Whether it is a row of verl's, as DAPO's sets have them too."""
    return isinstance(row.fields.get("reward_model"), Mapping) and "prompt" in row.fields


def of_verl(row: Row) -> Row | Task:
    """What a row of verl's is: the same row in our own fields, or its task where its
    `ground_truth` holds test cases. Raises DataError where it holds neither these nor an answer.
    """
    if row.fields.get("images") or row.fields.get("videos"):
        raise row.wrong("shows images, which no model is shown here; remove the row")
    truth = row.table("reward_model").fields.get("ground_truth")
    answer: object = truth
    with suppress(ValueError, RecursionError, TypeError):
        answer = json.loads(truth) if isinstance(truth, str) else truth
    name = {"task_id": row.fields.get("task_id", row.place), "prompt": row.fields["prompt"]}
    tests = answer
    if isinstance(answer, Mapping):
        tests = answer.get("assert_case") or answer.get("pytest")
    items = tests if isinstance(tests, list) else [tests]
    if any(isinstance(text, str) and TEST.search(text) for text in items):
        texts = Row({"tests": items}, row.where).texts("tests")
        return Row({**name, "tests": items, "entry_point": called_by(texts, row)}, row.where)
    if isinstance(answer, Mapping) or any(isinstance(case, Mapping) for case in items):
        messages = row.messages("prompt")
        try:
            task = rllm.task_of(Row({"problem": messages[-1].content, "tests": answer}, row.where))
        except LeftOutError as reason:
            raise row.wrong(f"a row of verl {reason}; give tests of ours (docs/data.md)") from None
        return replace(task, id=str(name["task_id"]), messages=messages)
    if isinstance(answer, list) and all(isinstance(text, str) for text in answer):
        if len(answer) != 1:
            raise row.wrong(f"'ground_truth' lists {len(answer)} answers; keep the right one")
        truth = answer[0]
    if not isinstance(truth, str | int | float) or truth == "":
        raise row.wrong("a row of verl without a 'ground_truth' of text; add it")
    return Row({**name, "expected_answer": str(truth)}, row.where)


def called_by(tests: Sequence[str], row: Row) -> str:
    """The first name that the tests import from the program, or else the first function that they
    call and that neither they nor Python define. Raises DataError where there is none.
    """
    nodes = [node for source in tests for node in ast.walk(parsed(source, row, "assert_case"))]
    imported = [
        alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module in PROGRAM
        for alias in node.names
        if alias.name != "*"
    ]
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    others = {getattr(node, "name", getattr(node, "arg", None)) for node in nodes}
    others |= vars(builtins).keys()
    functions = [call.id for call in calls if isinstance(call, ast.Name)]
    names = [*imported, *(name for name in functions if name not in others)]
    if not names:
        raise row.wrong("no assert calls a function of the program's; give asserts that do")
    return names[0]
