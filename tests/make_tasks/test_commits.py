"""A commit's files are read as they are stored, and nothing that a repository names runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from assay.errors import DataError
from assay.make_tasks.trees import read_tree

RUNS = "sh -c 'touch {mark}; cat'"
SETTINGS = {
    "smudge": '[filter "x"]\n\tsmudge = {runs}\n\trequired = true\n',
    "clean": '[filter "x"]\n\tclean = {runs}\n',
    "process": '[filter "x"]\n\tprocess = {runs}\n',
    "textconv": '[diff "x"]\n\ttextconv = {runs}\n\tcommand = {runs}\n',
    "merge driver": '[merge "x"]\n\tdriver = {runs}\n',
    "fsmonitor": "[core]\n\tfsmonitor = {runs}\n\tuntrackedCache = true\n",
    "hooks": "[core]\n\thooksPath = {hooks}\n",
    "pager": "[core]\n\tpager = {runs}\n\teditor = {runs}\n\taskPass = {runs}\n",
    "alternate names": "[core]\n\talternateRefsCommand = {runs}\n\tsshCommand = {runs}\n",
    "alias": "[alias]\n\tls-tree = !{runs}\n\tcat-file = !{runs}\n\tarchive = !{runs}\n",
    "archive": "[tar]\n\tumask = user\n[tar \"tar\"]\n\tcommand = {runs}\n",
    "signatures": "[gpg]\n\tprogram = {runs}\n[log]\n\tshowSignature = true\n",
    "submodule": '[submodule "s"]\n\tactive = true\n\tupdate = !{runs}\n\turl = ext::{runs}\n',
    "include": "[include]\n\tpath = {included}\n",
    "include of a folder": '[includeIf "gitdir:**"]\n\tpath = {included}\n',
    "remote": '[remote "o"]\n\turl = ext::{runs}\n\tuploadpack = {runs}\n\tpromisor = true\n'
    "[extensions]\n\tpartialClone = o\n[protocol]\n\tallow = always\n",
}  # fmt: skip


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path, **files: str) -> Path:
    git(folder.parent, "init", "-q", str(folder))
    for name, text in ({"a.py": "A = 1\n"} | files).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.mark.parametrize("name", SETTINGS)
def test_no_program_that_a_repositorys_settings_name_runs(tmp_path: Path, name: str) -> None:
    attributes = "* filter=x diff=x merge=x text eol=crlf\nb.py export-ignore\nc.py export-subst\n"
    files = {".gitattributes": attributes, "b.py": "B = 1\n", "c.py": "# $Format:%H %G?$\n"}
    folder = repository(tmp_path / "kit", **files)
    mark, hooks, included = tmp_path / "ran", tmp_path / "hooks", tmp_path / "included"
    runs = f'"{RUNS.format(mark=mark)}"'
    hooks.mkdir()
    for hook in ("post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"):
        for file in (hooks / hook, folder / ".git" / "hooks" / hook):
            file.write_text(f"#!/bin/sh\ntouch {mark}\n")
            file.chmod(0o755)
    included.write_text(SETTINGS["smudge"].format(runs=runs))
    with (folder / ".git" / "config").open("a") as config:
        config.write(SETTINGS[name].format(runs=runs, hooks=hooks, included=included))
    (folder / ".git" / "info" / "attributes").write_text("* filter=x diff=x\n")
    for package in (str(folder), f"{folder}@HEAD"):
        read_tree(package, tmp_path / f"tree{len(package)}")
        tree = tmp_path / f"tree{len(package)}"
        assert {file: (tree / file).read_text() for file in files} == files
    assert not mark.exists()


def test_an_object_that_a_partial_clone_lacks_is_said_and_not_fetched(tmp_path: Path) -> None:
    folder, mark = repository(tmp_path / "kit"), tmp_path / "ran"
    runs = f'"{RUNS.format(mark=mark)}"'
    with (folder / ".git" / "config").open("a") as config:
        config.write(SETTINGS["remote"].format(runs=runs))
    blob = git(folder, "rev-parse", "HEAD:a.py")
    (folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(DataError, match=r"cannot read|lacks"):
        read_tree(str(folder), tmp_path / "tree")
    assert not mark.exists()
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize("kind", ["plain", "packed", "bare", "work tree", "sha256", "borrowed"])
def test_a_commit_is_read_from_every_form_of_a_repository(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "kit"
    if kind == "sha256":
        git(tmp_path, "init", "-q", "--object-format=sha256", str(folder))
    repository(folder)
    (folder / "a.py").write_text("A = 2\n")
    git(folder, "commit", "-qam", "second")
    git(folder, "tag", "-a", "v1", "-m", "tag", "HEAD~1")
    match kind:
        case "packed":
            git(folder, "gc", "-q")
        case "bare" | "borrowed":
            words = {"bare": "--bare", "borrowed": "--shared"}[kind]
            git(tmp_path, "clone", "-q", words, str(folder), str(tmp_path / "copy"))
            folder = tmp_path / "copy"
        case "work tree":
            git(folder, "worktree", "add", "-q", str(tmp_path / "copy"))
            folder = tmp_path / "copy"
    for number, commit in enumerate(("", "@v1", "@HEAD~1")):
        read_tree(f"{folder}{commit}", tmp_path / str(number))
        assert (tmp_path / str(number) / "a.py").read_text() == f"A = {2 if not commit else 1}\n"


def test_modes_and_links_stay_and_submodules_do_not(tmp_path: Path) -> None:
    folder = repository(tmp_path / "kit", **{"run.sh": "#!/bin/sh\n"})
    (folder / "run.sh").chmod(0o755)
    (folder / "inner").symlink_to("a.py")
    (folder / "outer").symlink_to("/etc/passwd")
    repository(folder / "module")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "second")
    assert "160000" in git(folder, "ls-tree", "HEAD")
    read_tree(str(folder), tmp_path / "tree")
    tree = tmp_path / "tree"
    assert {file.name for file in tree.iterdir()} == {"a.py", "run.sh", "inner"}
    assert (tree / "run.sh").stat().st_mode & 0o111
    assert (tree / "inner").read_text() == "A = 1\n"


@pytest.mark.parametrize("names", [("..", "a.py"), (".git", "config"), ("a", "b")])
def test_a_tree_that_leaves_its_folder_is_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    folder = repository(tmp_path / "kit")
    blob = bytes.fromhex(git(folder, "rev-parse", "HEAD:a.py"))
    link = subprocess.run(
        ["git", "-C", folder, "hash-object", "-w", "--stdin"], input=b"/tmp", check=True,
        capture_output=True,
    ).stdout  # fmt: skip
    outer, inner = names

    def tree_object(data: bytes) -> str:
        words = ["hash-object", "-w", "--literally", "-t", "tree", "--stdin"]
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, input=data, check=True, capture_output=True).stdout.decode()

    below = bytes.fromhex(tree_object(b"100644 " + inner.encode() + b"\0" + blob))
    entries = b"40000 " + outer.encode() + b"\0" + below
    if outer == "a":  # a link and a folder of one name
        entries = b"120000 a\0" + bytes.fromhex(link.decode()) + entries
    commit = git(folder, "commit-tree", "-m", "bad", tree_object(entries).strip())
    with pytest.raises(DataError):
        read_tree(f"{folder}@{commit}", tmp_path / "deep" / "tree")
    assert not (tmp_path / "deep" / "tree").exists()
