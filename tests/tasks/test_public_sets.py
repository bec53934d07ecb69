"""HumanEval and MBPP, as published."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.tasks import load
from assay.types import Check, Task
from tests.tasks import sources


def runs(task: Task) -> bool:
    """Whether the published reference passes the published checks; both are the data set's own
    code.
    """
    names: dict[str, object] = {}
    (
        exec(f"{task.setup}\n{task.reference}", names)
        if not task.setup.startswith("root")
        else exec(f"{task.reference}\n{task.setup}", names)
    )
    for source in sources(task):
        exec(source, names)
    return True


@pytest.mark.data("humaneval")
def test_humaneval_has_its_164_tasks_and_each_reference_passes(public_data: Path) -> None:
    tasks = load("humaneval")
    assert [task.id for task in tasks] == [f"HumanEval/{n}" for n in range(164)]
    assert all(runs(task) for task in tasks)


@pytest.mark.data("humaneval")
def test_a_humaneval_task_is_a_stub_with_one_hidden_check(public_data: Path) -> None:
    first = load("humaneval", limit=1)[0]
    assert first.entry_point == "has_close_elements"
    assert first.prompt == first.stub
    assert first.stub.endswith('    """\n')
    assert len(first.checks) == 1
    assert first.checks[0].hidden
    assert sources(first)[0].endswith("\n\ncheck(has_close_elements)")
    assert first.setup == "from typing import List\n"
    assert (first.reference or "").startswith(first.stub)


@pytest.mark.data("humaneval")
def test_humanevals_setup_holds_its_helpers_but_never_the_stub(public_data: Path) -> None:
    tasks = load("humaneval")
    helpers = {"10": "is_palindrome", "32": "poly", "38": "encode_cyclic", "50": "encode_shift"}
    for number, helper in helpers.items():
        assert f"def {helper}(" in tasks[int(number)].setup
    assert not any(f"def {task.entry_point}(" in task.setup for task in tasks)
    assert sum(bool(task.setup) for task in tasks) == 21 + 4 + 1


@pytest.mark.data("humaneval")
def test_humanevals_stop_strings_never_cut_a_reference(public_data: Path) -> None:
    for task in load("humaneval"):
        assert not any(stop in str(task.reference)[len(task.stub) :] for stop in task.stop)


@pytest.mark.data("humaneval")
def test_humanevals_shuffled_splits_cover_it_once(public_data: Path) -> None:
    train, test = load("humaneval:train131"), load("humaneval:test33")
    assert (len(train), len(test)) == (131, 33)
    assert len({task.id for task in train + test}) == 164
    assert [task.id for task in train[:3]] == ["HumanEval/61", "HumanEval/104", "HumanEval/105"]


@pytest.mark.data("mbpp")
@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ("mbpp:all", 974), ("mbpp", 500), ("mbpp:train", 374), ("mbpp:validation", 90),
        ("mbpp:prompt", 10),
        ("mbpp_sanitized:all", 427), ("mbpp_sanitized", 257), ("mbpp_sanitized:train", 120),
        ("mbpp_sanitized:validation", 43), ("mbpp_sanitized:prompt", 7),
    ],
)  # fmt: skip
def test_mbpp_has_the_papers_splits(public_data: Path, spec: str, count: int) -> None:
    assert len(load(spec)) == count


@pytest.mark.data("mbpp")
@pytest.mark.long
@pytest.mark.parametrize("spec", ["mbpp:all", "mbpp_sanitized:all"])
def test_each_mbpp_reference_passes(public_data: Path, spec: str) -> None:
    assert all(runs(task) for task in load(spec))


@pytest.mark.data("mbpp")
def test_an_mbpp_prompt_shows_the_text_and_the_asserts(public_data: Path) -> None:
    task = load("mbpp:all", limit=2)[1]
    assert task.id == "MBPP/2"
    assert (
        task.prompt
        == '"""\nWrite a function to find the similar elements from the given two tuple lists.\n'
        "assert similar_elements((3, 4, 5, 6),(5, 7, 4, 10)) == (4, 5)\n"
        "assert similar_elements((1, 2, 3, 4),(5, 4, 3, 7)) == (3, 4)\n"
        'assert similar_elements((11, 12, 14, 13),(17, 15, 14, 13)) == (13, 14)\n"""\n'
    )
    assert task.checks[0] == Check(
        "assert similar_elements((3, 4, 5, 6),(5, 7, 4, 10)) == (4, 5)", hidden=False
    )
    assert task.stub == ""


@pytest.mark.data("mbpp")
def test_mbpps_entry_point_is_the_function_that_the_asserts_call(public_data: Path) -> None:
    tasks = {task.id: task for task in load("mbpp:all")}
    assert tasks["MBPP/126"].entry_point == "sum"
    assert tasks["MBPP/601"].entry_point == "max_chain_length"
    assert "class Pair" in str(tasks["MBPP/601"].reference)


@pytest.mark.data("mbpp")
def test_mbpps_setup_is_kept_and_line_ends_are_plain(public_data: Path) -> None:
    tasks = load("mbpp:all")
    assert [task.id for task in tasks if task.setup] == ["MBPP/367", "MBPP/927"]
    texts = [text for task in tasks for text in (task.setup, str(task.reference), task.prompt)]
    assert not any("\r" in text for text in texts)
    assert sum(task.setup == "import math\n" for task in load("mbpp_sanitized:all")) == 13
