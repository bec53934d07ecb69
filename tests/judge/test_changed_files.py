"""What decides a verdict may change between two judgements, in one process and in two."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from assay import content
from assay.content import digest_of, fingerprint_of
from assay.judge import Job, Judge, identity, prepared_task
from assay.judge.kinds.repository import contents_of
from assay.judge.prepared_task import PreparedTask
from assay.judge.repository_tree import tree_of
from assay.languages import Language
from assay.sandbox.limits import Limits
from assay.sandbox.program import ENVIRONMENT
from assay.types import Exchange, RepositoryTests, Task, Verdict
from tests.judge.test_repository import RIGHT
from tests.repositories import calc_task, write_tree

Edit = Callable[[Path], object]


def write_file(tree: Path, text: str) -> None:
    """Write text of the same length, and give the file its old time back."""
    file = tree / "src/a.py"
    times = file.stat()
    file.write_text(text)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def relink(link: Path, target: str) -> None:
    link.unlink()
    link.symlink_to(target)


EDITS: dict[str, Edit] = {
    "a file is edited": lambda tree: (tree / "src/a.py").write_text("x = 22\n"),
    "its size and time are kept": lambda tree: write_file(tree, "x = 2\n"),
    "a file is replaced": lambda tree: (
        (tree / "new").write_text("x = 2\n"), (tree / "new").replace(tree / "src/a.py")),
    "a file is added": lambda tree: (tree / "src/b.py").touch(),
    "a file is removed": lambda tree: (tree / "src/a.py").unlink(),
    "a folder is added": lambda tree: (tree / "empty").mkdir(),
    "a file is renamed": lambda tree: (tree / "src/a.py").rename(tree / "src/c.py"),
    "a right is taken": lambda tree: (tree / "src/a.py").chmod(0o600),
    "a program may be run": lambda tree: (tree / "src/a.py").chmod(0o755),
    "a folder is closed": lambda tree: (tree / "src").chmod(0o700),
    "a link leads elsewhere": lambda tree: relink(tree / "link", "src/b.py"),
    "a link becomes a file": lambda tree: (
        (tree / "link").rename(tree / "gone"), (tree / "gone").replace(tree / ".git/old"),
        (tree / "link").write_text("src/a.py")),
    "HEAD moves": lambda tree: (tree / ".git/HEAD").write_text("ref: refs/heads/other\n"),
}  # fmt: skip


def small_tree(folder: Path) -> Path:
    (folder / "src").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "src/a.py").write_text("x = 1\n")
    (folder / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (folder / "link").symlink_to("src/a.py")
    return folder


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize("name", EDITS)
def test_each_change_of_a_folder_is_another_content(
    name: str, is_settled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the files were left alone for long, or were written just now."""
    monkeypatch.setattr(content, "RACY_NS", -(10**18) if is_settled else 10**18)
    tree, copy = small_tree(tmp_path / "tree"), small_tree(tmp_path / "copy")
    before, fingerprint = digest_of(tree), fingerprint_of(tree)
    assert before == digest_of(tree) == digest_of(copy)
    EDITS[name](tree)
    assert digest_of(tree) != before
    assert fingerprint_of(tree) != fingerprint
    EDITS[name](copy)
    assert digest_of(tree) == digest_of(copy)


def test_only_what_may_have_changed_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, read = list[Path](), content._read

    def counted(path: Path, as_tree: bool) -> str:
        reads.append(path)
        return read(path, as_tree)

    monkeypatch.setattr(content, "_read", counted)
    tree = small_tree(tmp_path / "tree")
    for racy, expected in ((10**18, 2), (-(10**18), 1)):
        monkeypatch.setattr(content, "RACY_NS", racy)
        reads.clear()
        assert digest_of(tree) == digest_of(tree)
        assert len(reads) == expected


def test_a_change_while_a_folder_is_read_is_not_remembered_as_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, read = small_tree(tmp_path / "tree"), content._read
    monkeypatch.setattr(content, "RACY_NS", -(10**18))

    def edited_meanwhile(path: Path, as_tree: bool) -> str:
        digest = read(path, as_tree)
        (tree / "src/a.py").write_text("x = 3\n")
        return digest

    monkeypatch.setattr(content, "_read", edited_meanwhile)
    digest = digest_of(tree)
    monkeypatch.setattr(content, "_read", read)
    assert digest == digest_of(tree) == read(tree)


def repository(tree: Path, venv: Path) -> RepositoryTests:
    return RepositoryTests(str(tree), ("t.py::test",), (), roots=(str(venv),))


def install(venv: Path) -> None:
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(sys.executable)
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
    package = venv / "lib/python3.11/site-packages/package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("x = 1\n")


@pytest.mark.parametrize(
    "edit",
    [
        lambda venv: (venv / "lib/python3.11/site-packages/package/__init__.py").write_text("x=2"),
        lambda venv: (venv / "lib/python3.11/site-packages/other-1.dist-info").mkdir(),
        lambda venv: (venv / "pyvenv.cfg").write_text("home = /opt/bin\n"),
        lambda venv: relink(venv / "bin/python", "/bin/sh"),
        lambda venv: (venv / "lib/python3.11").rename(venv / "lib/python3.12"),
    ],
)  # fmt: skip
def test_another_environment_is_another_key(edit: Edit, tmp_path: Path) -> None:
    check = repository(small_tree(tmp_path / "tree"), tmp_path / "venv")
    install(tmp_path / "venv")
    before = contents_of(check)
    assert contents_of(check) == before
    edit(tmp_path / "venv")
    assert contents_of(check) != before


def test_the_interpreter_on_which_an_environment_stands_is_part_of_the_key(tmp_path: Path) -> None:
    check = repository(small_tree(tmp_path / "tree"), tmp_path / "venv")
    install(tmp_path / "venv")
    (tmp_path / "python3").write_text("one")
    (tmp_path / "venv/bin/python").unlink()
    (tmp_path / "venv/bin/python").symlink_to(tmp_path / "python3")
    before = contents_of(check)
    (tmp_path / "python3").write_text("two")
    assert contents_of(check) != before


NOTHING = "{}"
"""Right once the tree itself is repaired."""


async def judge_in(tree: Path, archive: Path) -> Verdict:
    async with Judge(slots=1, archive=archive) as judge:
        return (await judge.run(Job(replace(calc_task(tree), reference=None), NOTHING))).verdict


SCRIPT = """
import asyncio, sys
from pathlib import Path
from tests.judge.test_changed_files import judge_in
print(asyncio.run(judge_in(*map(Path, sys.argv[1:]))))
"""


def test_an_edited_tree_is_judged_anew_in_the_same_process_and_in_the_next(tmp_path: Path) -> None:
    tree, archive = write_tree(tmp_path / "tree"), tmp_path / "verdicts"
    source = (tree / "src/calc/__init__.py").read_text()
    task = replace(calc_task(tree), reference=None)

    async def judged_between_edits() -> list[Verdict]:
        ends = []
        async with Judge(slots=1, archive=archive) as judge:
            for text in (source, RIGHT, source):
                (tree / "src/calc/__init__.py").write_text(text)
                ends.append((await judge.run(Job(task, NOTHING))).verdict)
        return ends

    right = [Verdict.WRONG, Verdict.PASS, Verdict.WRONG]
    assert asyncio.run(judged_between_edits()) == right
    for text, verdict in ((RIGHT, "pass"), (source, "wrong")):
        (tree / "src/calc/__init__.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tree), str(archive)], capture_output=True, text=True,
            check=True, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert done.stdout.strip() == verdict


def test_a_verdict_on_a_tree_that_changed_meanwhile_is_not_kept(tmp_path: Path) -> None:
    tree, archive = write_tree(tmp_path / "tree"), tmp_path / "verdicts"
    source = (tree / "src/calc/__init__.py").read_text()
    task = replace(calc_task(tree), reference=None)

    async def edited_meanwhile() -> list[Verdict]:
        async with Judge(slots=1, archive=archive) as judge:
            judge_as_usual = judge._judge

            async def edit_first(task: Task, program: str) -> object:
                (tree / "src/calc/__init__.py").write_text(RIGHT)
                return await judge_as_usual(task, program)

            judge._judge = edit_first  # type: ignore[method-assign,assignment]
            ends = [(await judge.run(Job(task, NOTHING))).verdict]
            judge._judge = judge_as_usual  # type: ignore[method-assign]
            (tree / "src/calc/__init__.py").write_text(source)
            ends.append((await judge.run(Job(task, NOTHING))).verdict)
        return ends

    assert asyncio.run(edited_meanwhile()) == [Verdict.PASS, Verdict.WRONG]


def test_another_compiler_of_the_same_version_is_another_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "PATH", f"{tmp_path}:/usr/bin:/bin")
    compiler = tmp_path / "compiler"
    language = Language("New", "a.new", ("./program",), compile=("compiler", "{source}"))
    for module in (prepared_task, identity):
        monkeypatch.setattr(module, "language_named", lambda _: language)
    task = Task("t", "", (Exchange("", ""),), "", language="new")
    keys, versions = [], []
    for text in ("echo 1.0", "echo 1.0 # other", "echo 2.0"):
        (tmp_path / "new").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "new").chmod(0o755)
        (tmp_path / "new").replace(compiler)
        keys.append(PreparedTask(task, Limits(), True).key(""))
        versions += language.versions()
    assert len({*keys}) == 3
    assert versions == ["1.0", "1.0", "2.0"]


PLUGIN = """
from assay.languages import Language, language

class Mine(Language):
    def defines(self, source, name):
        return {answer}

language("{name}", Mine("Mine", "a.txt", ("/bin/cat",)))
"""


def test_another_code_of_a_plug_in_is_another_key_though_its_size_and_time_are_kept(
    tmp_path: Path,
) -> None:
    """Each process reads the source: bytecode of the old file has the new one's size and time."""
    script = (
        "import sys\nfrom assay.registry import load_plugins\nload_plugins([sys.argv[1]])\n"
        "from assay.judge.prepared_task import PreparedTask\n"
        "from assay.languages import languages\n"
        "from assay.sandbox.limits import Limits\nfrom assay.types import Exchange, Task\n"
        "task = Task('t', '', (Exchange('', ''),), '', language='mine_of_test')\n"
        "print(PreparedTask(task, Limits(), True).key('').hex(),"
        " languages['mine_of_test'].defines('', ''))\n"
    )
    file, answers = tmp_path / "mine.py", []
    for answer in (11, 22):
        file.write_text(PLUGIN.format(answer=answer, name="mine_of_test"))
        os.utime(file, (10**9, 10**9))
        command = [sys.executable, "-c", script, str(file)]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        answers.append(done.stdout.split())
    (first, eleven), (second, twenty_two) = answers
    assert (eleven, twenty_two) == ("11", "22")
    assert first != second


DIFF = "--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 5\n"


def test_an_edit_of_a_tree_does_not_reach_the_copies_with_bugs_of_the_tree_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in place nor for a tree that is as it was before, with files that were replaced."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tree = small_tree(tmp_path / "tree")
    (tree / "src/b.py").write_text("y = 1\n")
    check = RepositoryTests(str(tree), (), (), bug=DIFF)
    first = tree_of(check)
    (tree / "src/b.py").write_text("y = 2\n")
    second = tree_of(check)
    (tree / "src/b.py").unlink()
    (tree / "src/b.py").write_text("y = 1\n")
    texts = [(copy / "src/b.py").read_text() for copy in (first, second, tree_of(check))]
    assert texts == ["y = 1\n", "y = 2\n", "y = 1\n"]
    assert (second / "src/a.py").read_text() == "x = 5\n"


def test_a_tar_file_that_is_replaced_is_another_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tree, trees = small_tree(tmp_path / "tree"), []
    for text in ("x = 1\n", "x = 2\n"):
        (tree / "src/a.py").write_text(text)
        with tarfile.open(tmp_path / "tree.tar", "w") as archive:
            archive.add(tree, "tree")
        trees.append(tree_of(RepositoryTests(str(tmp_path / "tree.tar"), (), ())))
    assert [(one / "src/a.py").read_text() for one in trees] == ["x = 1\n", "x = 2\n"]
