"""Reads the files of a commit, and runs nothing that the repository asks for.

A repository's own settings can name programs: filters, hooks, a monitor of files, a pager, what
fetches objects. So git gets a folder of its own, with copies of the names of commits and no other
settings, and prints objects as they are stored.
"""

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from assay.errors import DataError
from assay.judge.patches import PatchError, safe_path
from assay.registry import one_line

FORMATS = ("objectFormat", "refStorage")
"""Settings without which git cannot read a repository's objects and names."""
NAMES = ("packed-refs", "refs", "reftable", "shallow")
"""What names commits, beside HEAD and its like."""
VARIABLES = {
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0", "GIT_ATTR_NOSYSTEM": "1", "LC_ALL": "C",
}  # fmt: skip
CHUNK = 1 << 20


class CommitFile(NamedTuple):
    """A file of a commit, as git lists it."""

    path: str
    mode: int
    object: str
    size: int


def git_folder(path: Path) -> Path | None:
    """The folder of git's at a path, which may be bare, a further work tree or a submodule."""
    git = path / ".git"
    if git.is_file():  # a link of git's own making to the folder
        words = git.read_text(errors="replace").partition("gitdir:")[2].strip()
        git = (path / words).resolve()
    is_bare = (path / "HEAD").is_file() and (path / "objects").is_dir()
    return git if git.is_dir() else path if is_bare else None


class Ancestor(NamedTuple):
    """A commit, as git's log tells it."""

    id: str
    parents: list[str]
    message: str


class Difference(NamedTuple):
    """How a file differs between two commits, as git's diff-tree tells it."""

    status: str
    """`M` for another content, `A` and `D` for a file that is new or gone, `R` and a number for
    another name, `T` for another kind of file.
    """
    path: str
    """The path after the change."""
    modes: tuple[int, int]
    objects: tuple[str, str]


class Commit:
    """A commit of the repository of a folder of git's, by any name that git knows.

    Raises DataError where there is none.
    """

    def __init__(self, git: Path, name: str, temporary: Path) -> None:
        common = git / "commondir"
        shared = (git / common.read_text().strip()).resolve() if common.is_file() else git
        self._where, self._objects = git, shared / "objects"
        self._folder = Path(tempfile.mkdtemp(dir=temporary))
        (self._folder / "objects").mkdir()
        (self._folder / "refs").mkdir()
        for file in [*(shared / entry for entry in NAMES), *git.glob("*HEAD")]:
            copy = self._folder / file.name
            if file.is_dir():
                shutil.copytree(file, copy, symlinks=True, dirs_exist_ok=True)
            elif file.is_file():
                shutil.copyfile(file, copy)
        self._write_settings(shared / "config")
        self._commit = self._read("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")

    def _write_settings(self, theirs: Path) -> None:
        settings = ["[core]", "\trepositoryFormatVersion = 1", "\tbare = true", "[extensions]"]
        for key in FORMATS if theirs.is_file() else ():
            # git reads this file alone, and does nothing that stands in it
            words = ["config", "--no-includes", "--file", str(theirs), "--get", f"extensions.{key}"]
            done = subprocess.run(
                ["git", *words], capture_output=True, text=True, env=self._variables(),
                cwd=self._folder,
            )  # fmt: skip
            if (value := done.stdout.strip()).isalnum():
                settings.append(f"\t{key} = {value}")
        (self._folder / "config").write_text("\n".join([*settings, ""]))

    def _variables(self) -> dict[str, str]:
        others = {key: text for key, text in os.environ.items() if not key.startswith("GIT_")}
        return {**others, **VARIABLES}

    def _start(self, *words: str, stdin: IO[bytes] | int) -> subprocess.Popen[bytes]:
        places = {"GIT_DIR": str(self._folder), "GIT_OBJECT_DIRECTORY": str(self._objects)}
        try:
            return subprocess.Popen(
                ["git", *words], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=self._variables() | places, cwd=self._folder,
            )  # fmt: skip
        except OSError as error:
            raise DataError(f"git cannot read {self._where}: {one_line(error)}") from None

    def _output(self, *words: str) -> bytes:
        with self._start(*words, stdin=subprocess.DEVNULL) as process:
            output, errors = process.communicate()
        if process.returncode:
            why = " ".join(errors.decode("utf-8", "replace").strip().splitlines()[-1:])
            raise DataError(f"git cannot read {self._where}: {why}")
        return output

    def _read(self, *words: str) -> str:
        return self._output(*words).decode("utf-8", "surrogateescape").removesuffix("\n")

    def ancestors(self, most: int) -> list[Ancestor]:
        """It and at most so many commits before it, the newest first."""
        words = ["log", "-z", "--no-mailmap", f"--max-count={most}", "--format=%H%n%P%n%B"]
        entries = self._output(*words, self._commit, "--").decode("utf-8", "replace")
        parts = (entry.split("\n", 2) for entry in entries.split("\0") if entry)
        return [Ancestor(id, parents.split(), message) for id, parents, message in parts]

    def differences(self, ancestor: Ancestor) -> list[Difference]:
        """What a commit changes of its only parent."""
        words = ["diff-tree", "-r", "-z", "-M", "--raw", "--no-abbrev", "--end-of-options"]
        fields = iter(self._read(*words, *ancestor.parents, ancestor.id).split("\0"))
        differences = []
        for facts in filter(None, fields):
            old, new, before, after, status = facts.removeprefix(":").split()
            path = [next(fields) for _ in range(1 + (status[0] in "RC"))][-1]
            differences.append(
                Difference(status, path, (int(old, 8), int(new, 8)), (before, after))
            )
        return differences

    def content(self, name: str) -> bytes:
        """The content of a file, by its object's name."""
        return self._output("cat-file", "blob", name)

    def files(self) -> Iterator[CommitFile]:
        """Its files and links; submodules are none. Raises DataError for a path that leaves it."""
        listed = self._read("ls-tree", "-r", "-z", "-l", "--full-tree", self._commit)
        for entry in filter(None, listed.split("\0")):
            facts, _, path = entry.partition("\t")
            mode, kind, name, size = facts.split()
            if kind == "blob":
                if not size.isdecimal():
                    raise DataError(f"{self._where} lacks the content of {path}")
                try:
                    yield CommitFile(safe_path(path), int(mode, 8), name, int(size))
                except PatchError as error:
                    raise DataError(f"{self._where} has a commit of which {error}") from None

    def write(self, files: list[CommitFile], folder: Path) -> None:
        """Write files into a new folder; links last, so that no file is written through one."""
        folder.mkdir(parents=True)
        ordered = sorted(files, key=lambda file: stat.S_ISLNK(file.mode))
        with tempfile.TemporaryFile() as names:
            names.write("".join(f"{file.object}\n" for file in ordered).encode())
            names.seek(0)
            with self._start("cat-file", "--batch", stdin=names) as process:
                assert process.stdout
                for file in ordered:
                    if len(header := process.stdout.readline().split()) != 3:
                        process.kill()
                        raise DataError(f"{self._where} lacks the content of {file.path}")
                    self._write(file, int(header[2]), process.stdout, folder)
                    process.stdout.read(1)

    def _write(self, file: CommitFile, size: int, stream: IO[bytes], folder: Path) -> None:
        target = folder / file.path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if stat.S_ISLNK(file.mode):
                target.symlink_to(os.fsdecode(stream.read(size)))
                return
            with target.open("xb") as output:
                while size:
                    if not (chunk := stream.read(min(size, CHUNK))):
                        raise DataError(f"{self._where} lacks the end of {file.path}")
                    size -= output.write(chunk)
            if file.mode & 0o111:
                target.chmod(target.stat().st_mode | 0o111)
        except (OSError, ValueError) as error:
            raise DataError(f"{file.path} cannot be written: {one_line(error)}") from None
