"""EvalPlus's two sets: as many inputs as published, converted as published, and references that
pass them all.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import DataError, SettingsError
from assay.judge import Job
from assay.judge.codec import Unpacker, loads
from assay.sandbox.limits import Limits
from assay.tasks import load
from assay.tasks.evalplus import CHECKERS, humaneval_task_of, mbpp_task_of
from assay.tasks.rows import Row
from assay.types import Call, Check, Task, Verdict
from tests.judge.opened import judge_all


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def row(**changes: Any) -> dict[str, Any]:
    return {
        "task_id": "Mbpp/0", "prompt": "p", "entry_point": "f",
        "canonical_solution": "def f(*a): return a\n",
        "base_input": [[1]], "plus_input": [[2], [3]], "atol": 0, **changes,
    }  # fmt: skip


def arguments(task: Task) -> list[Any]:
    return [
        Unpacker().value(loads(call.arguments.encode()))
        for call in task.checks
        if isinstance(call, Call)
    ]


@pytest.mark.data("humanevalplus", "humaneval", "mbppplus")
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "tasks", "calls"), [("humanevalplus", 164, 124253), ("mbppplus", 378, 41015)]
)
def test_every_reference_passes_all_its_inputs(
    public_data: Path, name: str, tasks: int, calls: int
) -> None:
    found = load(name)
    assert len(found) == tasks
    assert sum(len(task.checks) for task in found) == calls
    executions = judge_all(
        [Job(task, task.reference) for task in found], Limits(cpu_seconds=30, wall_seconds=300)
    )
    failed = [
        (task.id, seen)
        for task, seen in zip(found, executions, strict=True)
        if seen.verdict is not Verdict.PASS
    ]
    assert not failed


@pytest.mark.data("humanevalplus", "humaneval")
def test_a_humaneval_task_is_humanevals_with_more_inputs(public_data: Path) -> None:
    for task, plain in zip(load("humanevalplus"), load("humaneval"), strict=True):
        assert (task.id, task.entry_point, task.stop) == (plain.id, plain.entry_point, plain.stop)
        if task.id != "HumanEval/115":  # whose prompt EvalPlus has mended
            assert (task.stub, task.setup) == (plain.stub, plain.setup)
    first = load("humanevalplus", limit=1)[0]
    assert first.checks[0] == Call("[[1.0,2.0,3.9,4.0,5.0,2.2],0.3]", None, 1e-6)


@pytest.mark.data("mbppplus")
def test_an_mbpp_task_is_a_description_with_one_assert(public_data: Path) -> None:
    tasks = {task.id: task for task in load("mbppplus")}
    assert tasks["Mbpp/6"].prompt.endswith(
        'or not.\nassert differ_At_One_Bit_Pos(13,9) == True\n"""\n'
    )
    assert (tasks["Mbpp/6"].stub, tasks["Mbpp/6"].setup) == ("", "")
    assert arguments(tasks["Mbpp/793"]) == [
        [[1, 2, 3], 1],
        [[1, 1, 1, 2, 3, 4], 1],
        [[2, 2, 3, 3, 6, 8, 9], 3],
    ]


@pytest.mark.parametrize(
    ("number", "given", "taken"),
    [
        (2, [[1, 2], [3]], [(1, 2), (3,)]),
        (63, [[[1, 2], [3]]], [[(1, 2), (3,)]]),
        (259, [[[1], [2]], [[3]]], [((1,), (2,)), ((3,),)]),
        (75, [[[1], [2]], 3], [[(1,), (2,)], 3]),
        (250, [[1, [2]], 3], [(1, [2]), 3]),
        (307, [[1], 2, 3], [(1,), 2, 3]),
        (106, [[1], [2]], [[1], (2,)]),
        (580, [[1, [2, [3]]]], [(1, (2, (3,)))]),
        (278, [[1, [2, [3]]]], [(1, (2, [3]))]),
        (115, [[[1, 2], [], 3]], [[{1, 2}, {}, {}]]),
        (722, [{"a": [1, 2]}, 3], [{"a": (1, 2)}, 3]),
        (124, ["1", "-0-2j"], [1.0, complex("-0-2j")]),
        (252, ["(1+2j)"], [1 + 2j]),
        (3, [[1, [2]]], [[1, [2]]]),
    ],
)
def test_mbpps_inputs_become_what_json_could_not_carry(
    number: int, given: list[Any], taken: list[Any]
) -> None:
    task = mbpp_task_of(
        Row(row(task_id=f"Mbpp/{number}", base_input=[given], plus_input={}), "here")
    )
    assert repr(arguments(task)) == repr([taken])


def test_base_inputs_come_first_and_the_tolerance_is_the_tasks_or_a_millionth() -> None:
    assert mbpp_task_of(Row(row(), "here")).checks == tuple(
        Call(f"[{n}]", None, 1e-6) for n in (1, 2, 3)
    )
    assert mbpp_task_of(Row(row(atol=0.5), "here")).checks[0] == Call("[1]", None, 0.5)


@pytest.mark.parametrize(
    ("entry_point", "reference", "inputs", "right", "wrong"),
    [
        ("find_zero", "return -xs[0] / xs[1]", [[[6, -3]]], "return 2.00001", "return 2.0001"),
        ("are_equivalent", "return True", [[[1]]], "return 'anything'", "raise ValueError"),
        ("sum_div", "return 7", [[1]], "return 0", "return 6"),
        ("surface_Area", "return 33", [[3, 4]], "return 35", "return 34"),
        ("digit_distance_nums", "return 9", [[5, 123]], "return 5", "return 6"),
        ("Diff", "return [1, 2]", [[[1]]], "return (2, 1, 1)", "return [1]"),
        ("check_str", "return re.match('a', 'a')", [["a"]], "return 1", "return None"),
        ("check_str", "return None", [["a"]], "return False", "return True"),
    ],
)
def test_special_oracles_accept_every_right_answer(
    entry_point: str, reference: str, inputs: list[Any], right: str, wrong: str
) -> None:
    named = f"import re\ndef {entry_point}(xs, *_): "
    fields = row(
        entry_point=entry_point,
        canonical_solution=named + reference,
        base_input=inputs,
        plus_input=[],
    )
    task = mbpp_task_of(Row(fields, "here"))
    assert entry_point in CHECKERS
    executions = judge_all([Job(task, named + body) for body in (right, wrong)])
    assert [execution.verdict is Verdict.PASS for execution in executions] == [True, False]


def test_rows_as_they_are_on_the_hub_are_judged_by_their_own_test() -> None:
    stub = 'def f(x):\n    """Same."""\n'
    fields: dict[str, Any] = {"task_id": "HumanEval/0", "prompt": stub, "entry_point": "f"}
    fields["canonical_solution"] = "    return x\n"
    test = "def check(candidate):\n    assert candidate(1) == 1\n"
    assert humaneval_task_of(Row({**fields, "test": test}, "here")).checks == (
        Check(f"{test}\n\ncheck(f)"),
    )
    fields = {
        "task_id": 6,
        "code": "def f(x): return x\n",
        "prompt": "Text.",
        "test_imports": [],
        "test": "assert f(1)",
    }
    task = mbpp_task_of(
        Row({**fields, "test_list": ["assert f(1) == 1", "assert f(2) == 2"]}, "here")
    )
    assert (task.id, task.entry_point, task.prompt) == (
        "Mbpp/6",
        "f",
        '"""\nText.\nassert f(1) == 1\n"""\n',
    )
    assert task.checks == (Check("assert f(1)"),)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"atol": "0"}, "'atol' is no number"),
        ({"plus_input": None}, "'plus_input' is missing"),
        ({"plus_input": [1]}, "'plus_input' is a list"),
        ({"task_id": "Mbpp/2", "base_input": [[1]]}, "an input is not what Mbpp/2 takes"),
        ({"entry_point": None}, "'entry_point' is missing"),
    ],
)
def test_a_bad_row_is_blamed_with_file_line_and_field(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    file = tmp_path / "my.jsonl"
    file.write_text(json.dumps(row(**changes)))
    with pytest.raises(DataError) as caught:
        load(f"mbppplus:{file}")
    assert str(caught.value).startswith(f"{file}, line 1: ")
    assert why in str(caught.value)


def test_there_is_one_split() -> None:
    with pytest.raises(SettingsError, match="unknown split 'train' of mbppplus"):
        load("mbppplus:train")
