"""Repositories whose boxes show the right change: in each place of git, or as a release."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import venv
from pathlib import Path

import pytest

from assay.check import check
from assay.check.findings import Flaw
from assay.check.shown_answers import shown_answer
from assay.errors import RolloutLostError
from assay.judge import Judge
from assay.judge.patches import unified
from assay.tasks import load
from assay.types import Task
from tests.repositories import copy_pytest

WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = WRONG.replace("-", "+")
TESTS = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
ROW = {"id": "calc", "prompt": "add subtracts", "tree": "calc", "roots": ["venv"],
       "fail_to_pass": ["test_calc.py::test_add"],
       "reference": unified({"calc.py": WRONG}, {"calc.py": RIGHT})}  # fmt: skip
COMMIT = "git commit --quiet --all --message"
FIX = f"sed -i s/-/+/ calc.py && {COMMIT} fix && git reset --quiet --hard HEAD~1"
"""The fix is a commit that only the reflog has."""
PLACES = {
    "a branch": f"git branch later && {FIX} && git branch --force later HEAD@{{1}}",
    "a tag": f"{FIX} && git tag v2 HEAD@{{1}}",
    "the reflog": FIX,
    "nothing but objects": f"{FIX} && rm -r .git/logs .git/ORIG_HEAD",
    "a pack": f"{FIX} && git tag v2 HEAD@{{1}} && git gc --quiet && rm -r .git/logs",
    "the stash": "sed -i s/-/+/ calc.py && git stash --quiet",
    "a fetched head": f"{FIX} && git rev-parse HEAD@{{1}} > .git/FETCH_HEAD",
    "an alternate": f"{FIX} && mkdir .git/kept && mv .git/objects/?? .git/kept"
    " && echo ../kept > .git/objects/info/alternates",
    "a repository inside": f"{FIX} && mv .git kept.git",
    "a branch not born": f"{FIX} && git checkout --quiet --orphan new",
    "the commit itself": f"sed -i s/-/+/ calc.py && {COMMIT} fix && sed -i s/+/-/ calc.py",
    "the index": "sed -i s/-/+/ calc.py && git add . && sed -i s/+/-/ calc.py",
}  # fmt: skip


@pytest.fixture
def no_cheats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spares `check` the published cheats, which other tests try."""
    monkeypatch.setattr("assay.judge.kinds.repository_cheats.CHEATS", [])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository at the commit before the fix, of a task in a file beside it."""
    (tmp_path / "calc").mkdir()
    (tmp_path / "calc" / "calc.py").write_text(WRONG)
    (tmp_path / "calc" / "test_calc.py").write_text(TESTS)
    (tmp_path / "tasks.jsonl").write_text(json.dumps(ROW) + "\n")
    git(tmp_path / "calc", f"git init --quiet && git add . && {COMMIT} base")
    return tmp_path / "calc"


def git(tree: Path, script: str) -> None:
    names = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "a")
    emails = dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "a@b.c")
    subprocess.run(script, shell=True, check=True, cwd=tree, env=os.environ | names | emails)


def shown(tree: Path) -> str:
    (task,) = load(str(tree.parent / "tasks.jsonl"))

    async def search() -> str:
        async with Judge(slots=1) as judge:
            return await shown_answer(judge, task)

    return asyncio.run(search())


@pytest.mark.parametrize("place", PLACES)
def test_a_fix_in_git_is_found(tree: Path, place: str) -> None:
    git(tree, PLACES[place])
    assert (tree / "calc.py").read_text() == WRONG
    kept = ("unreachable ", "repaired calc.py")[place in ("the commit itself", "the index")]
    assert shown(tree).startswith(f"git has {kept}")


@pytest.mark.long
def test_a_history_that_ends_at_the_base_shows_nothing(tree: Path) -> None:
    git(tree, f"echo 1 > old.txt && git add . && {COMMIT} more && git gc --quiet")
    assert shown(tree) == ""
    git(tree, f"{FIX} && git clone --quiet --no-local --no-tags --single-branch . ../clean")
    assert shown(tree)
    git(tree, "cd .. && rm -rf calc && mv clean calc")
    assert shown(tree) == ""


@pytest.mark.long
def test_an_annotated_tag_of_the_history_shows_nothing(tree: Path) -> None:
    git(tree, "git tag --annotate v1 --message v1")
    assert shown(tree) == ""
    git(tree, f"{FIX} && git tag --annotate v2 --message v2 HEAD@{{1}}")
    assert shown(tree).startswith("git has unreachable ")


def test_what_only_looks_like_a_repository_shows_nothing(tree: Path) -> None:
    (tree / "models" / "objects").mkdir(parents=True)
    assert shown(tree) == ""


def test_a_box_that_cannot_be_searched_leaves_the_other_tasks(
    tree: Path, monkeypatch: pytest.MonkeyPatch, no_cheats: None
) -> None:
    git(tree, FIX)
    venv.create(tree.parent / "venv", symlinks=True)
    copy_pytest(next((tree.parent / "venv").glob("lib/python3*/site-packages")))
    rows = [ROW | {"id": name} for name in ("lost", "late", "calc")]
    (tree.parent / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    failures = {"lost": RolloutLostError("the box has ended"), "late": TimeoutError("too late")}

    async def search(judge: Judge, task: Task) -> str:
        if task.id in failures:
            raise failures[task.id]
        return await shown_answer(judge, task)

    monkeypatch.setattr("assay.check.trial.shown_answer", search)
    reports = check(str(tree.parent / "tasks.jsonl"))
    found = [[(one.flaw, one.detail) for one in report.findings] for report in reports]
    assert (Flaw.NOT_JUDGED, "the box has ended") in found[0]
    assert (Flaw.NOT_JUDGED, "too late") in found[1]
    assert Flaw.ANSWER_SHOWN in dict(found[2])
    assert not any(report.sound for report in reports)


def test_an_installed_release_shows_the_answer_where_a_box_cannot_cover_it(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tree.parent / "venv", symlinks=True)
    (packages,) = (tree.parent / "venv").glob("lib/python3*/site-packages")
    copy_pytest(packages)
    (packages / "calc.py").write_text(RIGHT)
    assert shown(tree) == ""
    monkeypatch.setattr("assay.judge.kinds.repository.copies", lambda *_: ())
    found = shown(tree)
    assert found.startswith("a release of the repository is installed: ")
    assert found.endswith("/site-packages/calc.py")
