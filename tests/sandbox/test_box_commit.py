"""The git repository of a box: what git says in it, and that nobody's settings reach a diff."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from assay.sandbox.box import Box
from assay.sandbox.box_commit import commit_tree
from tests.sandbox.test_box import TIERS, in_box, shell

NAMES = [".gitattributes", ".gitignore", "a b.txt", "empty", "link", "made.py", "src/run"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """One with ignored files, and attributes by which git would store other bytes."""
    tree = tmp_path / "tree"
    (tree / "src").mkdir(parents=True)
    (tree / ".gitignore").write_text("made.py\n")
    (tree / ".gitattributes").write_text("*.txt text eol=lf\n*.py ident filter=lfs\n")
    (tree / "a b.txt").write_bytes(b"one\r\ntwo\r\n")
    (tree / "made.py").write_text("x = 1  # $Id$\n")
    (tree / "empty").touch()
    (tree / "src" / "run").write_text("#!/bin/sh\n")
    (tree / "src" / "run").chmod(0o755)
    (tree / "link").symlink_to("src/run")
    return tree


def contents(tree: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(tree)): path.read_bytes()
        for path in tree.rglob("*") if path.is_file()
    }  # fmt: skip


@pytest.mark.parametrize("tier", TIERS)
def test_git_works_in_a_box_as_in_a_repository_with_one_commit(tier: str, tree: Path) -> None:
    before = contents(tree)

    async def work(box: Box) -> None:
        assert await commit_tree(box) == ""
        assert await shell(box, "git status --porcelain --ignored") == ""
        assert await shell(box, "git rev-list --all --count; git log --format=%an:%s") == (
            "1\nuser:The repository as it is given\n"
        )
        assert sorted((await shell(box, "git ls-files")).splitlines()) == NAMES
        assert await shell(box, "git fsck --full --strict 2>&1") == ""
        await shell(box, "sed -i s/two/three/ 'a b.txt'; echo new > new; rm made.py")
        assert "-two\r\n+three\r\n" in await shell(box, "git diff")
        assert await shell(box, "git status --porcelain") == ' M "a b.txt"\n D made.py\n?? new\n'
        diff = await box.diff()
        await shell(box, "git stash --include-untracked")
        assert await box.diff() == "", "what git puts back has the bytes of the tree"
        await shell(box, "git stash pop && git commit --quiet --all --message mine")
        assert await box.diff() == diff, "it tells what differs from the tree, not from a commit"
        await shell(box, "git diff HEAD~ > $TMPDIR/patch; git reset --hard HEAD~ && git clean -fdx")
        assert await box.diff() == ""
        await shell(box, "git apply $TMPDIR/patch")

    in_box(tree, work, TIERS[tier])
    assert contents(tree) == before, "nothing of it is in the tree"


def test_equal_trees_have_equal_commits_and_others_have_others(tree: Path) -> None:
    commits = []

    async def work(box: Box) -> None:
        await commit_tree(box)
        commits.append(await shell(box, "git rev-parse HEAD"))

    in_box(tree, work, TIERS["A"])
    os.utime(tree / "empty", (1, 1))
    in_box(tree, work, TIERS["C"])
    (tree / "empty").write_text("full")
    in_box(tree, work)
    assert commits[0] == commits[1] != commits[2]


def test_a_tree_without_a_file_is_a_commit_too(tmp_path: Path) -> None:
    async def work(box: Box) -> None:
        assert await commit_tree(box) == ""
        assert await shell(box, "git log --format=%s") == "The repository as it is given\n"

    in_box(tmp_path, work)


def test_a_tree_with_a_history_keeps_it(tree: Path) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@a"]
    for words in (["init"], ["add", "-A"], [*who, "commit", "-m", "theirs"]):
        subprocess.run(["git", *words], cwd=tree, check=True, capture_output=True)
    (tree / "empty").write_text("changed since")

    async def work(box: Box) -> None:
        assert await commit_tree(box) == ""
        assert await shell(box, "git log --format=%s") == "theirs\n"
        assert await shell(box, "git status --porcelain") == " M empty\n"

    in_box(tree, work)


def test_where_git_cannot_commit_the_tree_nothing_of_a_repository_is_left(tree: Path) -> None:
    (tree / "large").write_bytes(os.urandom(3 << 20))

    async def work(box: Box) -> None:
        assert await commit_tree(box)
        assert ".git" not in (await shell(box, "ls -A")).splitlines()
        assert await shell(box, "echo works") == "works\n"

    in_box(tree, work, size_mb=2)


SETTINGS = """[core]
	repositoryformatversion = 0
	fsmonitor = touch {mark}
	pager = touch {mark}
	sshCommand = touch {mark}
	hooksPath = {folder}/hooks
[diff]
	external = touch {mark}
	context = 0
	noprefix = true
[diff "evil"]
	command = touch {mark}
	textconv = sh -c 'touch {mark}; echo evil'
[filter "evil"]
	clean = sh -c 'touch {mark}; tr a-z A-Z'
	smudge = sh -c 'touch {mark}; tr a-z A-Z'
	required = true
[color]
	diff = always
"""
ATTRIBUTES = "* filter=evil diff=evil text eol=crlf working-tree-encoding=UTF-16\n"
PLACES = {
    "its repository": "$PWD/.git",
    "a repository of temporary files": "$TMPDIR/.git",
    "files of a user's settings": "$TMPDIR",
}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("where", PLACES)
def test_no_settings_attributes_or_hooks_of_git_change_a_diff_or_run_for_it(
    where: str, tier: str, tree: Path
) -> None:
    diffs = []

    async def work(box: Box) -> None:
        await commit_tree(box)
        await shell(box, "echo three >> 'a b.txt'; echo new > new; rm src/run")
        diffs.append(await box.diff())
        folder = (await shell(box, f"echo {PLACES[where]}")).strip()
        mark = f"{box.folder}/mark"
        await shell(box, f"test -e {folder} || cp -r .git {folder}")
        for path in ("config", ".gitconfig"):
            await shell(box, f"cat > {folder}/{path}",
                        stdin=SETTINGS.format(mark=mark, folder=folder).encode())  # fmt: skip
        await shell(
            box, f"mkdir -p {folder}/info {folder}/hooks $TMPDIR/git; tee {folder}/info/attributes"
            " > $TMPDIR/git/attributes; for name in pre-commit post-checkout post-index-change;"
            f" do cp /bin/true {folder}/hooks/$name; printf '#!/bin/sh\\ntouch {mark}\\n' >"
            f" {folder}/hooks/$name; done", stdin=ATTRIBUTES.encode(),
        )  # fmt: skip
        diffs.extend([await box.diff(), (await box.fitting_diff())[0]])
        assert "mark" not in (await shell(box, "ls")).splitlines()

    in_box(tree, work, TIERS[tier])
    assert diffs[0] == diffs[1] == diffs[2]
    assert "+three\n" in diffs[0]


@pytest.mark.parametrize("tier", TIERS)
def test_attributes_in_the_tree_leave_a_diff_the_bytes_of_its_files(tier: str, tree: Path) -> None:
    async def work(box: Box) -> None:
        await commit_tree(box)
        await shell(box, f"printf %s '{ATTRIBUTES}' > .gitattributes; echo '* -diff' > src/x")
        await shell(box, "mkdir d; echo '* -diff' > d/.gitattributes; printf 'é\\r\\n' > d/e")
        diff = await box.diff()
        assert "+é\r\n" in diff
        assert "GIT binary patch" not in diff

    in_box(tree, work, TIERS[tier])
