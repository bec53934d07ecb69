"""Patches of a repository: files that are shown, answers in each form, and what is told of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.engines.base import Sampling
from assay.environments import build
from assay.errors import DataError
from assay.extract import edits
from assay.rollout.prompter import Prompter
from assay.types import Rollout, Task, Verdict
from tests.environments.repositories import FIX, SOURCE, repository
from tests.policy.test_chat import chat_of
from tests.rollout.talks import plain, talk
from tests.rollout.test_play import learned, played

WRONG = (
    "### calc.py\n<<<<<<< SEARCH\n    return a - b\n=======\n    return a * b\n>>>>>>> REPLACE\n"
)
RIGHT = WRONG.replace("a * b", "a + b")


def worked(task: Task, *lines: str, **settings: Any) -> Rollout:
    environment = {"name": "patch", **settings}
    return talk(*lines, task=task, environment=environment, sampling=Sampling(2000))[0]


def test_blocks_and_diffs_are_judged_as_diffs(tmp_path: Path) -> None:
    task = repository(tmp_path)
    for reply in (RIGHT, f"So:\n```diff\n{FIX}```\n", f"<think>\nHm.\n</think>\n{RIGHT}"):
        rollout = worked(task, reply, turns=1)
        assert rollout.execution is not None
        assert rollout.execution.verdict is Verdict.PASS
        assert rollout.turns[0].program == FIX
    rollout = worked(task, WRONG, turns=1)
    assert rollout.execution is not None
    assert rollout.execution.verdict is Verdict.WRONG


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_line_ends_stay_as_the_file_has_them(tmp_path: Path, ends: str) -> None:
    task = repository(tmp_path)
    (tmp_path / "tree/calc.py").write_bytes(SOURCE.replace("\n", "\r\n").encode())
    for reply in (RIGHT, FIX):
        rollout = worked(task, reply.replace("\n", ends), turns=1)
        assert rollout.execution is not None
        assert rollout.execution.verdict is Verdict.PASS
        assert "+    return a + b\r\n" in (rollout.turns[0].program or "")


def test_a_reference_that_cannot_be_shown_names_its_task(tmp_path: Path) -> None:
    binary = "diff --git a/x b/x\nGIT binary patch\nliteral 3\n"
    task = replace(repository(tmp_path), reference=binary)
    with pytest.raises(DataError, match=r"task 'calc/0': its reference cannot be shown: .*binary"):
        worked(task, RIGHT, files="changed")


def test_files_that_are_asked_for_are_shown(tmp_path: Path) -> None:
    task = repository(tmp_path)
    rollout = worked(task, "I read:\n### calc.py\n### ../secret\n### none.py\n", RIGHT)
    assert rollout.turns[0].observation == (
        f"### calc.py\n```\n{SOURCE}```\n### ../secret\n(there is no such file)\n"
        "### none.py\n(there is no such file)"
    )
    assert rollout.turns[1].program == FIX
    prompt = plain().text(rollout.turns[0].prompt_tokens)
    assert "# calc.py\n# tests/test_calc.py\n" in prompt


def test_a_link_out_of_the_tree_is_not_read(tmp_path: Path) -> None:
    task = repository(tmp_path)
    (tmp_path / "tree" / "link").symlink_to("/etc/hostname")
    rollout = worked(task, "### link\n", RIGHT)
    assert rollout.turns[0].observation == "### link\n(there is no such file)"


def test_why_a_patch_does_not_fit_is_told_and_it_may_be_written_anew(tmp_path: Path) -> None:
    rollout = worked(repository(tmp_path), WRONG.replace("a - b", "b - a"), RIGHT)
    first, second = rollout.turns
    assert first.observation.startswith(
        "That is no patch: the SEARCH part for calc.py is not in the file"
    )
    assert first.program is None
    assert second.program == FIX


def test_visible_tests_that_fail_are_told_and_hidden_ones_are_not(tmp_path: Path) -> None:
    rollout = worked(repository(tmp_path, hidden=False), WRONG, RIGHT)
    told = rollout.turns[0].observation
    assert told.startswith(
        "The tests fail with this patch:\ntests/test_calc.py::test_add: failed\n"
    )
    assert "assert 2 == 3" in told
    assert "test_twice" not in told
    assert rollout.execution is not None
    assert rollout.execution.verdict is Verdict.PASS
    hidden = worked(repository(tmp_path / "hidden"), WRONG, RIGHT)
    assert len(hidden.turns) == 1


def test_the_prompt_is_the_statement_the_files_and_the_form_of_an_answer(tmp_path: Path) -> None:
    task = repository(tmp_path)
    environment = build({"name": "patch", "files": "changed"})
    (message,) = Prompter(chat_of(tmp_path, "auto"), environment).conversation(task)
    assert message.content.startswith(
        f"add subtracts.\n\n### calc.py\n```\n{SOURCE}```\n\nAnswer with one or more SEARCH/REPLACE"
    )


def test_a_demonstration_that_fails_is_read_and_the_right_one_learned_as_blocks(
    tmp_path: Path,
) -> None:
    task = repository(tmp_path, hidden=False)
    (sample,) = played(WRONG, name="patch", task=task)
    text = plain().tokenizer.decode(sample.tokens)
    assert "The tests fail with this patch:" in text
    assert "a * b" not in learned(sample)
    assert learned(sample).startswith(
        "### calc.py\n<<<<<<< SEARCH\n    return a - b\n=======\n    return a + b\n>>>>>>> REPLACE"
    )


def test_blocks_of_a_demonstration_have_the_lines_that_their_place_needs_and_no_more() -> None:
    files = {"a.py": "x = 1\ny = 2\n\nx = 1\nz = 3\nv = 0\n"}

    def learned_of(change: str) -> str:
        return edits.as_blocks(f"--- a/a.py\n+++ b/a.py\n{change}", files.get)

    twice = learned_of("@@ -2,5 +2,5 @@\n y = 2\n \n-x = 1\n+x = 7\n z = 3\n v = 0\n")
    assert twice == (
        "### a.py\n<<<<<<< SEARCH\nx = 1\nz = 3\n=======\nx = 7\nz = 3\n>>>>>>> REPLACE"
    )
    inserted = learned_of("@@ -4,3 +4,4 @@\n x = 1\n z = 3\n+w = 4\n v = 0\n")
    assert inserted == ("### a.py\n<<<<<<< SEARCH\nv = 0\n=======\nw = 4\nv = 0\n>>>>>>> REPLACE")
    assert "+x = 7" in edits.patch(twice, files.get)
    assert "+w = 4" in edits.patch(inserted, files.get)
