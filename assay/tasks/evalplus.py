"""EvalPlus: HumanEval's and MBPP's tasks with far more inputs, answered by their references
(arXiv:2305.01210).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.judge.codec import Packer
from assay.tasks import humaneval, mbpp, task_set
from assay.tasks.rows import TOLERANCE, PublicSet, Row
from assay.types import Call, Check, Task

HUMANEVAL = PublicSet(
    "humanevalplus",
    "humanevalplus/HumanEvalPlus.jsonl.gz",
    "evalplus/humanevalplus",
    splits=("test",),
)
MBPP = PublicSet("mbppplus", "mbppplus/MbppPlus.jsonl.gz", "evalplus/mbppplus", splits=("test",))


@task_set
def humanevalplus(split: str = "test") -> Iterator[Task]:
    """HumanEval+: HumanEval's 164 tasks with 757 inputs each on average (arXiv:2305.01210)."""
    return map(humaneval_task_of, HUMANEVAL.rows(split))


@task_set
def mbppplus(split: str = "test") -> Iterator[Task]:
    """MBPP+: 378 of MBPP's tasks, corrected, with 109 inputs each on average (arXiv:2305.01210)."""
    return map(mbpp_task_of, MBPP.rows(split))


def humaneval_task_of(row: Row) -> Task:
    """A row of HumanEval+: as released, with base_input, plus_input and atol, or as on the hub,
    with a test's source.

    Raises DataError when a field is missing or malformed.
    """
    task = humaneval.task_of(row)
    if "base_input" not in row.fields:
        return task
    return replace(task, checks=_calls(row), checker=CHECKERS.get(task.entry_point, ""))


def mbpp_task_of(row: Row) -> Task:
    """A row of MBPP+: as released, with base_input, plus_input and atol, or as on the hub, with a
    test's source.

    Raises DataError when a field is missing or malformed.
    """
    if "base_input" not in row.fields:
        first_test = Row({**row.fields, "test_list": list(row.texts("test_list")[:1])}, row.where)
        task = mbpp.task_of(first_test)
        return replace(task, id=task.id.replace("MBPP", "Mbpp"), checks=(Check(row.text("test")),))
    entry_point = row.text("entry_point")
    return Task(
        id=row.text("task_id"),
        prompt=row.text("prompt"),
        checks=_calls(row),
        entry_point=entry_point,
        reference=row.text("canonical_solution"),
        checker=CHECKERS.get(entry_point, ""),
        large=row.text("task_id") in LARGE,
        stop=humaneval.STOP,
    )


def _calls(row: Row) -> tuple[Call, ...]:
    """The base inputs, then the others."""
    identity, atol = row.text("task_id"), row.fields.get("atol")
    if not isinstance(atol, int | float):
        raise row.wrong("'atol' is no number; add the tolerance, or 0")
    inputs: list[Any] = []
    for field in ("base_input", "plus_input"):
        if row.fields.get(field) is None:
            raise row.wrong(f"{field!r} is missing; make it a list of lists of arguments")
        if row.fields[field] != {}:  # how EvalPlus writes no inputs
            inputs += row.items(field, list, "a list of lists of arguments")
    convert = CONVERSIONS.get(identity, list)
    try:
        packed = [Packer().text(convert(arguments)) for arguments in inputs]
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise row.wrong(f"an input is not what {identity} takes ({error}); fix it") from error
    return tuple(Call(text, None, atol or TOLERANCE) for text in packed)


LARGE = ("Mbpp/255", "Mbpp/599")
"""Tasks with large inputs: 5 answers of Mbpp/255 take 40 to 900 MiB as JSON, and one takes
1.1 GiB in the program; 16 inputs of Mbpp/599 take 2.7 s each."""


def _deep(value: Any) -> Any:
    return tuple(map(_deep, value)) if isinstance(value, list) else value


KINDS: tuple[tuple[Callable[[list[Any]], list[Any]], tuple[int, ...]], ...] = (
    (
        lambda inputs: [tuple(value) for value in inputs],
        (
            2,
            116,
            132,
            143,
            222,
            261,
            273,
            394,
            399,
            421,
            424,
            429,
            470,
            560,
            579,
            596,
            616,
            630,
            726,
            740,
            744,
            809,
        ),
    ),
    (
        lambda inputs: [[tuple(part) for part in value] for value in inputs],
        (63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780),
    ),
    (lambda inputs: [tuple(tuple(part) for part in value) for value in inputs], (259, 401, 445)),
    (lambda inputs: [[tuple(part) for part in inputs[0]], *inputs[1:]], (75, 413, 444, 753)),
    (lambda inputs: [tuple(inputs[0]), *inputs[1:]], (250, 307, 405, 446, 617, 720, 763, 808)),
    (lambda inputs: [inputs[0], tuple(inputs[1])], (106, 750)),
    (lambda inputs: [_deep(value) for value in inputs], (580, 615, 791)),
    (
        lambda inputs: [
            tuple(tuple(value) if isinstance(value, list) else value for value in inputs[0])
        ],
        (278,),
    ),
    (
        lambda inputs: [
            [set(value) if isinstance(value, list) and value else {} for value in inputs[0]]
        ],
        (115,),
    ),
    (lambda inputs: [{key: tuple(value) for key, value in inputs[0].items()}, *inputs[1:]], (722,)),
    (lambda inputs: [float(inputs[0]), complex(inputs[1])], (124,)),
    (lambda inputs: [complex(inputs[0])], (252,)),
)
"""What JSON could not carry, by the numbers of MBPP's tasks."""
CONVERSIONS = {f"Mbpp/{number}": convert for convert, numbers in KINDS for number in numbers}

CHECKERS = {
    name: table["source"]
    for table in tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["checker"]
    for name in table["entry_points"]
}
"""EvalPlus's special oracles, by entry point."""
