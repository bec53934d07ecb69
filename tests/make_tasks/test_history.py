"""Tasks of commits: which are taken, what their statements say, and a task from commit to proof."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from assay.judge import Job, judge_all
from assay.judge.patches import parse
from assay.judge.repository_tree import tree_of
from assay.make_tasks.commits import Commit, git_folder
from assay.make_tasks.edits import SourceFile
from assay.make_tasks.history import (
    FIRST,
    MERGE,
    MORE_FILES,
    NO_TEXT,
    NOT_BOTH,
    RENAMES,
    repair_of,
)
from assay.make_tasks.statement import REQUEST, CommitWording
from assay.tasks import load
from assay.types import RepositoryTests, Verdict
from tests.make_tasks.test_commits import git, repository
from tests.make_tasks.test_make_tasks import CORE, TESTS, invoked, made

WRONG = CORE.replace(
    "if value > high:\n        return high", "if value > high:\n        return low"
)
OLD_TESTS = TESTS.replace(", (9, 3)", "")
MESSAGE = """Let clamp return its upper limit

A value above `high` became `low`.
test_clamp has a case for it.

Signed-off-by: a <a@b.c>
"""


def commit(folder: Path, message: str, **files: str | bytes | None) -> str:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.unlink()
        else:
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)
    return git(folder, "rev-parse", "HEAD")


def kit(folder: Path) -> Path:
    """A repository whose first commit has a bug."""
    files = {"kit/__init__.py": "", "kit/core.py": WRONG, "tests/test_core.py": OLD_TESTS}
    return repository(folder, **files)


def test_commits_are_left_out_by_what_they_change(tmp_path: Path) -> None:
    folder = kit(tmp_path / "kit")
    more = {"tests/test_core.py": TESTS}
    commit(folder, "code alone", **{"kit/core.py": CORE})
    commit(folder, "tests alone", **more)
    commit(folder, "a file", **{"kit/new.py": "A = 1\n", "tests/test_core.py": OLD_TESTS})
    moved: dict[str, str | bytes | None] = {
        "kit/new.py": None,
        "kit/newer.py": "A = 1\n",
        "tests/test_core.py": TESTS,
    }
    commit(folder, "a name", **moved)
    bad: dict[str, str | bytes | None] = {"kit/core.py": b"A = '\xff'\n"}
    commit(folder, "no text", **bad, **{"tests/test_core.py": OLD_TESTS})
    commit(folder, "repair", **{"kit/core.py": CORE, **more, "README.md": "words\n"})
    commit(
        folder, "both", **{"kit/core.py": WRONG, "kit/newer.py": "A = 2\n", "tests/test_b.py": ""}
    )
    git(folder, "checkout", "-qb", "side", "HEAD~1")
    commit(folder, "beside", **{"docs/a.md": "a\n"})
    git(folder, "checkout", "-q", "-")
    git(folder, "merge", "-q", "--no-edit", "side")
    place = git_folder(folder)
    assert place
    opened = Commit(place, "HEAD", tmp_path)
    ends = {it.message.strip(): repair_of(opened, it) for it in opened.ancestors(100)}
    files = {name: end if isinstance(end, str) else [file.path for file in end]
             for name, end in ends.items()}  # fmt: skip
    assert files == {
        "Merge branch 'side'": MERGE, "beside": NOT_BOTH, "both": ["kit/core.py", "kit/newer.py"],
        "repair": NO_TEXT, "no text": NO_TEXT, "a name": RENAMES, "a file": MORE_FILES,
        "tests alone": NOT_BOTH, "code alone": NOT_BOTH, "first": FIRST,
    }  # fmt: skip


SOURCES = {"tests/test_core.py": SourceFile(TESTS.encode())}
FAILING = ["tests/test_core.py::test_clamp[9-3]"]


def test_a_message_states_a_task_without_what_names_a_test_or_is_a_line_of_it() -> None:
    line = "    assert clamp(value, 1, 3) == expected\n"
    text = CommitWording(MESSAGE + line).state("", FAILING, SOURCES)
    assert text == (
        f"Let clamp return its upper limit\n\nA value above `high` became `low`.\n\n{REQUEST}"
    )
    report = CommitWording("wip\n").state("The report.", FAILING, SOURCES)
    assert report == "wip\n\nThe report."


def test_a_message_of_few_words_states_nothing_without_a_program() -> None:
    assert CommitWording("fix tests\n").state("", FAILING, SOURCES) == ""


@pytest.mark.long
def test_a_commit_s_repair_is_a_task_and_the_others_are_counted(tmp_path: Path) -> None:
    folder = kit(tmp_path / "kit")
    files = {"kit/core.py": CORE, "tests/test_core.py": TESTS, "CHANGES.md": "clamp is right\n"}
    repair = commit(folder, MESSAGE, **files)
    both = {"kit/core.py": CORE + "\n\nA = 1\n", "tests/test_core.py": TESTS + "\n\n# more\n"}
    commit(folder, "Add a constant", **both)
    result = made(folder, tmp_path / "out", "--bugs", "commits", "--slots", "1")
    (report,) = result["packages"]
    assert (report["sites"], report["tried"], report["kept"]) == (3, 2, 1)
    assert (report["no test fails"], report[FIRST], report["tests"]) == (1, 1, 7)
    (task,) = load(str(tmp_path / "out" / "tasks.jsonl"))
    assert (task.id, task.tags["operator"]) == (f"kit/{repair[:12]}", "commit")
    (check,) = task.checks
    assert isinstance(check, RepositoryTests)
    assert check.fail_to_pass == ("tests/test_core.py::test_clamp[9-3]",)
    tree = tree_of(check)
    assert (tree / "kit/core.py").read_text() == WRONG
    assert "test_clamp" not in (tree / "tests/test_core.py").read_text()
    assert (tree / "CHANGES.md").exists()
    assert [PurePosixPath(change.new or "").name for change in parse(task.reference or "")] == [
        "core.py"
    ]
    assert task.prompt.startswith("Let clamp return its upper limit\n\nA value above")
    assert "print(repr(clamp(9, 1, 3)))" in task.prompt
    assert "test_clamp" not in task.prompt
    assert "Signed-off" not in task.prompt
    right, empty = judge_all([Job(task, task.reference), Job(task, "")])
    assert (right.verdict, empty.verdict) == (Verdict.PASS, Verdict.WRONG)
    assert [it.name for it in (tmp_path / "out" / "trees" / "kit").iterdir()] == [repair[:12]]


@pytest.mark.long
def test_a_history_whose_tests_do_not_run_is_refused_with_why(tmp_path: Path) -> None:
    folder = kit(tmp_path / "kit")
    absent = {"tests/conftest.py": "import no_such_package\n"}
    commit(folder, MESSAGE, **{"kit/core.py": CORE, "tests/test_core.py": TESTS, **absent})
    code, shown, line = invoked(folder, "--output", tmp_path / "out", "--bugs", "commits")
    assert code == 2
    assert "1 tests do not run" in shown
    assert "No module named 'no_such_package'" in line
    assert not (tmp_path / "out").exists()
