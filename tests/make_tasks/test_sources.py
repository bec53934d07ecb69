"""Sources of trees: an archive, a folder, a commit; and what never gets into a tree."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from assay.errors import DataError
from assay.make_tasks.trees import name_of, read_tree, size_of, source_files

FILES = {
    "pkg/mod.py": "A = 1\n", "tests/test_mod.py": "", "pkg/tests/helper.py": "", "setup.py": "",
    "conftest.py": "", "pkg/test_of.py": "", "docs/conf.py": "", "build/lib/pkg/mod.py": "A = 1\n",
    "pkg/__pycache__/mod.cpython-311.pyc": "x", "pkg.egg-info/PKG-INFO": "", "pkg/mod.py.orig": "A",
}  # fmt: skip
IN_TREE = {"pkg/mod.py", "tests/test_mod.py", "pkg/tests/helper.py", "setup.py", "conftest.py",
           "pkg/test_of.py", "docs/conf.py"}  # fmt: skip


def write(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def files(tree: Path) -> set[str]:
    return {one.relative_to(tree).as_posix() for one in tree.rglob("*") if not one.is_dir()}


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "-C", folder, *identity, *words], check=True, capture_output=True)


def test_a_folder_comes_without_history_caches_builds_and_left_overs(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "inner").symlink_to("pkg/mod.py")
    read_tree(str(folder), tmp_path / "tree")
    assert files(tmp_path / "tree") == IN_TREE | {"inner"}
    assert list(source_files(tmp_path / "tree")) == ["pkg/mod.py"]


def test_an_archive_is_its_only_folder(tmp_path: Path) -> None:
    write(tmp_path / "pkg-1.0")
    with tarfile.open(tmp_path / "pkg-1.0.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "pkg-1.0", "pkg-1.0")
    read_tree(str(tmp_path / "pkg-1.0.tar.gz"), tmp_path / "tree")
    assert files(tmp_path / "tree") == IN_TREE


def test_a_python_that_filters_no_archives_unpacks_with_a_library_and_as_safely(
    tmp_path: Path,
) -> None:
    """Debian 12's is 3.11.2."""
    write(tmp_path / "pkg-1.0")
    for name, inside in (("good", "pkg-1.0"), ("bad", "../pkg-1.0")):
        with tarfile.open(tmp_path / f"{name}.tar.gz", "w:gz") as tar:
            tar.add(tmp_path / "pkg-1.0", inside)
    code = (
        "import sys, tarfile\nfrom pathlib import Path\nvars(tarfile).pop('data_filter', None)\n"
        "from assay.errors import DataError\nfrom assay.make_tasks.trees import read_tree\n"
        "read_tree('good.tar.gz', Path('tree'))\n"
        "try: read_tree('bad.tar.gz', Path('other'))\nexcept DataError as error: print(error)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "bad.tar.gz cannot be unpacked" in done.stdout
    assert files(tmp_path / "tree") == IN_TREE
    assert not (tmp_path / "other").exists()


def test_a_repository_is_one_commit_without_later_ones_and_without_history(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    (folder / "pkg").mkdir(parents=True)
    for number in range(3):
        (folder / "pkg" / "mod.py").write_text(f"A = {number}\n")
        git(folder, "init", "-q") if number == 0 else None
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", f"commit {number}")
    (folder / "pkg" / "mod.py").write_text("A = 'not committed'\n")
    for name, package, number in (("head", folder, 2), ("first", f"{folder}@HEAD~2", 0)):
        read_tree(str(package), tmp_path / name)
        assert files(tmp_path / name) == {"pkg/mod.py"}
        assert (tmp_path / name / "pkg" / "mod.py").read_text() == f"A = {number}\n"


@pytest.mark.parametrize(("name", "link"), [("../out.py", ""), ("out", "/etc/passwd")])
def test_an_archive_cannot_reach_beside_the_tree(tmp_path: Path, name: str, link: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = (tarfile.SYMTYPE if link else tarfile.REGTYPE), link
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.addfile(member, io.BytesIO())
    with pytest.raises(DataError, match="cannot be unpacked"):
        read_tree(str(tmp_path / "a.tar.gz"), tmp_path / "tree" / "b")
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize(
    ("package", "says"),
    [
        ("./nothing/here", "write h11"),
        ("a b", "write h11"),
        ("--pre", "write h11"),
        ("{folder}@--exec=x", "write h11"),
        ("{folder}@nosuch", "git cannot read"),
        ("{folder}/no.tar.gz", "cannot be unpacked"),
    ],
)
def test_what_is_no_package_is_refused_in_one_line(tmp_path: Path, package: str, says: str) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "no.tar.gz").write_text("no archive")
    with pytest.raises(DataError, match=says) as caught:
        read_tree(package.format(folder=tmp_path), tmp_path / "tree")
    assert "\n" not in str(caught.value)


def test_a_tree_s_size_is_that_of_its_sources_and_not_of_its_tests(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("a\n" * 300)
    (tmp_path / "a.py").write_text("a\n" * 200)
    assert size_of(tmp_path) == "up to 200 lines"
    (tmp_path / "b.py").write_text("a\n")
    assert size_of(tmp_path) == "up to 1,000 lines"
    (tmp_path / "b.py").write_text("a\n" * 5000)
    assert size_of(tmp_path) == "more lines"


def test_a_tree_is_named_after_its_package() -> None:
    names = ["h11", "h11==0.16.0", "./x/h11/", "/a/h11-0.16.0.tar.gz", "./h11@v1", "more-itertools"]
    assert [name_of(one) for one in names] == ["h11"] * 5 + ["more-itertools"]
