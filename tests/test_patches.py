"""Diffs and SEARCH/REPLACE blocks: what they make of files, and what they may not do."""

from __future__ import annotations

import random
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from assay.extract.edits import patch
from assay.judge.patches import PatchError, apply, parse, reverse, unified, write

FILES = {
    "a.py": "import os\n\n\ndef f(x):\n    return x - 1\n\n\ndef g(x):\n    return x\n",
    "no_end.txt": "one\ntwo",
    "same.py": "x = 1\nx = 1\n",
}
ONE = (
    "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ {} @@\n def f(x):\n-    return x - 1\n"
    "+    return x + 1\n"
)
NEW = "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc\n"
NAMES = "--- a/{0}\n+++ b/{0}\n"
RIGHT = FILES["a.py"].replace("x - 1", "x + 1")
REPAIRED: dict[str, str | None] = {"a.py": RIGHT}


def applied(diff: str) -> dict[str, str | None]:
    return apply(parse(diff), FILES.get)


def edit(path: str, search: str, new: str) -> str:
    return f"### {path}\n<<<<<<< SEARCH\n{search}=======\n{new}>>>>>>> REPLACE\n"


@pytest.mark.parametrize("counts", ["-4,2 +4,2", "-1,2 +1,2", "-4,9 +4,9", "-4 +4", "-99,2 +99,2"])
def test_a_hunk_is_applied_where_its_lines_stand_whatever_its_counts_say(counts: str) -> None:
    assert applied(ONE.format(counts)) == {"a.py": RIGHT}


@pytest.mark.parametrize(
    ("diff", "files"),
    [
        ("--- a/a.py\n+++ b/a.py\n@@ -5 +5 @@\n-    return x - 1\n+    return x + 1", REPAIRED),
        ("--- /dev/null\n+++ b/d/new.py\n@@ -0,0 +1,2 @@\n+x\n+y\n", {"d/new.py": "x\ny\n"}),
        ("diff --git a/e b/e\nnew file mode 100644\nindex 000..e69\n", {"e": ""}),
        (
            "diff --git a/same.py b/same.py\ndeleted file mode 100644\n--- a/same.py\n"
            "+++ /dev/null\n@@ -1,2 +0,0 @@\n-x = 1\n-x = 1\n",
            {"same.py": None},
        ),
        (
            "diff --git a/same.py b/to.py\nsimilarity index 100%\nrename from same.py\n"
            "rename to to.py\n",
            {"same.py": None, "to.py": FILES["same.py"]},
        ),
        (NAMES.format("no_end.txt") + "@@ -2 +2 @@\n-two\n\\ No newline at end of file\n+2\n",
         {"no_end.txt": "one\n2\n"}),
        (NAMES.format("no_end.txt") + "@@ -2 +2 @@\n-two\n+2\n", {"no_end.txt": "one\n2"}),
        (f"From 12\n\n- fixed\n---\n{ONE.format('-4,2 +4,2')}-- \n2.39.5\n", REPAIRED),
        (NAMES.format("same.py") + "@@ -2 +2 @@\n-x = 1\n+x = 2\n", {"same.py": "x = 1\nx = 2\n"}),
        ('--- "a/\\303\\251.py"\n+++ "b/\\303\\251.py"\n@@ -0,0 +1 @@\n+x\n', None),
    ],
)  # fmt: skip
def test_what_a_diff_makes_of_files(diff: str, files: dict[str, str | None] | None) -> None:
    if files is None:
        assert apply(parse(diff), {"é.py": ""}.get) == {"é.py": "x\n"}
    else:
        assert applied(diff) == files


@pytest.mark.parametrize(
    ("diff", "message"),
    [
        ("", "no unified diff"),
        (ONE.format("-4,2 +4,2").replace("x - 1", "x - 2"), "hunk 1 of a.py does not match"),
        (ONE.format("-4,2 +4,2").replace("a.py", "b.py"), "there is no file b.py"),
        ("--- a/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-import os\n", "not all of its lines"),
        ("diff --git a/a.py b/same.py\nrename from a.py\nrename to same.py\n", "exists already"),
        (f"diff --git a/x b/x\nnew file mode 120000\n{NEW}", "a link"),
        (f"diff --git a/x b/x\nindex 12..34 120000\n{NEW}", "a link"),
        ("diff --git a/x b/x\nnew file mode 160000\n", "a submodule"),
        ("diff --git a/x b/x\nGIT binary patch\nliteral 3\n", "binary"),
        ("diff --git a/x b/x\nBinary files a/x and b/x differ\n", "binary"),
        *(
            (f"--- a/a.py\n+++ b/{path}\n@@ -1 +1 @@\n-import os\n+x\n", message)
            for path, message in [
                ("../a.py", "leaves the tree"), ("/etc/passwd", "leaves the tree"),
                ("d/../../a.py", "leaves the tree"), ("./a.py", "leaves the tree"),
                ("a//b", "leaves the tree"), ("a/", "leaves the tree"),
                (".git/hooks/pre-commit", "git's own"), ("d/.GIT/config", "git's own"),
                ("a\\b", "no path"), ("x" * 2000, "no path"), ("a\0b", "no path"),
            ]
        ),
        ('--- "a/\\056\\056/x"\n+++ "b/\\056\\056/x"\n@@ -1 +1 @@\n-a\n+b\n', "leaves the tree"),
        ("diff --git a/a.py b/a.py\nrename from a.py\nrename to ../x\n", "leaves the tree"),
    ],
)  # fmt: skip
def test_what_a_patch_may_not_do_or_that_does_not_fit_is_refused(diff: str, message: str) -> None:
    with pytest.raises(PatchError, match=message):
        applied(diff)


def test_edits_under_paths_become_a_diff() -> None:
    reply = f"<think>{edit('a.py', '', '')}</think>I fix f.\n<solution>\n```python\n" + edit(
        "a.py", "    return x - 1\n", "    return x + 1\n"
    ) + "```\n```python\n" + edit("`new.py`", "", "y = 2\n") + "```\n</solution>"  # fmt: skip
    diff = patch(reply, FILES.get)
    assert applied(diff) == {"a.py": RIGHT, "new.py": "y = 2\n"}
    assert diff.count("@@ -2,7 +2,7 @@") == 1, "three lines around the change"
    twice = edit("a.py", "x - 1\n", "").replace("x - 1", "    return x - 1") * 2
    with pytest.raises(PatchError, match="is not in the file"):
        patch(twice, FILES.get)


def test_a_fenced_diff_is_taken_without_its_fence() -> None:
    assert applied(patch(f"So:\n```diff\n{ONE.format('-4,2 +4,2')}```\nDone.", FILES.get)) == {
        "a.py": RIGHT
    }


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ("I do not know.", "has no change"),
        (edit("same.py", "x = 1\n", "x = 2\n"), "more than once"),
        (edit("b.py", "x = 1\n", ""), "there is no file b.py"),
        (edit("../b.py", "", "x\n"), "leaves the tree"),
        (edit("a.py", "", "x\n"), "empty, and the file is not"),
        (edit("a.py", "return x - 1\n", "return x + 1\n"), "is not in the file"),
        (edit("", "", "x\n"), "no line '### path'"),
        ("### a.py\n<<<<<<< SEARCH\nimport os\n=======\n", "no line '>>>>>>> REPLACE'"),
        (edit("a.py", "import os\n", "import os\n") * 201, "more than 200"),
    ],
)
def test_an_answer_that_fits_nothing_says_what_is_wrong(reply: str, message: str) -> None:
    with pytest.raises(PatchError, match=message):
        patch(reply, FILES.get)


def changed(text: str, random_: random.Random) -> str:
    lines = text.split("\n")
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(len(lines))
        choice = random_.random()
        if choice < 0.4:
            lines.insert(
                at, random_.choice(["", "x", "\\ x", "-- y", "++ z", "@@ -1 +1 @@", "\x0c"])
            )
        elif choice < 0.7 and len(lines) > 1:
            del lines[at]
        else:
            lines[at] += "!"
    return "\n".join(lines)


def test_what_git_writes_is_applied_as_git_does_and_ours_by_git(tmp_path: Path) -> None:
    random_ = random.Random(0)
    git = ["git", "-c", "core.safecrlf=false", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    for _ in range(40):
        old = changed("\n".join(random_.choice("abc") for _ in range(30)), random_)
        new = changed(old, random_)
        (tmp_path / "f").write_text(old)
        subprocess.run([*git, "add", "-A"], check=True)
        (tmp_path / "f").write_text(new)
        diff = subprocess.run([*git, "diff"], check=True, capture_output=True, text=True).stdout
        assert old == new or apply(parse(diff), {"f": old}.get) == {"f": new}
        if old == new:
            continue
        assert apply(reverse(parse(diff)), {"f": new}.get) == {"f": old}
        for ours in (unified({"f": old}, {"f": new}), write(parse(diff))):
            (tmp_path / "f").write_text(old)
            subprocess.run(
                [*git, "apply", "--unidiff-zero", "-"], check=True, input=ours, text=True
            )
            assert (tmp_path / "f").read_text() == new
            assert apply(parse(ours), {"f": old}.get) == {"f": new}


@pytest.mark.long
@pytest.mark.parametrize(
    "diff",
    [
        ONE.format("-4,2 +4,2") * 20_000, "--- a\n+++ b\n" * 100_000, "diff --git a b\n" * 100_000,
        ONE.format("-1,9 +1,9") + " x\n" * 300_000, "@@ -1 +1 @@\n" * 100_000,
        ONE.format("-4 +4") + "@@ -1 +1 @@\n x = 1\n" * 50_000, "\\\n" * 200_000,
        NAMES.format("big") + "@@ -9 +9 @@\n-a\n+b\n" * 20_000,
        (NAMES.format("big") + "@@ -1 +1 @@\n-a\n+a\n") * 20_000,
        NAMES.format("big") + "@@ -9 +9 @@\n" + "-a\n" * 100_000 + "-b\n",
    ],
)  # fmt: skip
def test_a_hostile_diff_takes_time_linear_in_its_length(diff: str) -> None:
    start, files = time.process_time(), FILES | {"big": "a\n" * 200_000}
    with suppress(PatchError):
        apply(parse(diff), files.get)
    assert time.process_time() - start < 4
