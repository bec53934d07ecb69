"""Where a tree comes from: a source distribution, a folder, or a commit of a git repository."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath, PurePosixPath

from assay.archives import tarfile
from assay.errors import DataError
from assay.make_tasks.commits import Commit, git_folder
from assay.paths import real_path
from assay.registry import one_line

MOST_FILES, MOST_MB = 200_000, 2048
LEFT_OUT = (
    ".git", ".hg", ".svn", ".tox", ".nox", ".eggs", ".venv", "venv", "build", "dist", "__pycache__",
    ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules", "*.pyc", "*.pyo", "*.egg-info",
    "*.orig", "*.rej",
)  # fmt: skip
"""What is no part of a tree: history, environments, and copies of the sources."""
OTHERS = {"tests", "test", "testing", "docs", "doc", "examples", "benchmarks", "scripts"}
SIZES = 200, 1000, 5000
"""Lines of packages: what a small model must read to find a bug."""
SETUP = ("setup.py", "conftest.py", "noxfile.py", "tasks.py")
REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(==[A-Za-z0-9.+!_-]+)?")


def read_tree(package: str, tree: Path) -> None:
    """Fill the new folder `tree` with the files of a package.

    `package` is a name for pip (`h11`, `h11==0.16.0`), a .tar.gz file, a folder, or a git
    repository, of which the commit that is checked out, or `PATH@COMMIT`, is taken without its
    history, as it is stored: no filter of the repository runs. Raises DataError for anything else,
    and for an archive that leaves its folder.
    """
    path, commit = path_and_commit(package)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "unpacked")
        git = None if commit.startswith("-") else git_folder(Path(path))
        if git:
            opened = Commit(git, commit, Path(temporary))
            files = list(opened.files())
            _check_size(package, (file.size for file in files))
            opened.write(files, folder)
        elif Path(package).is_dir():
            folder = Path(package)
        elif Path(package).is_file() and package.endswith((".tar.gz", ".tgz")):
            _unpack(Path(package), folder)
        elif REQUIREMENT.fullmatch(package):
            _unpack(_download(package, Path(temporary)), folder)
        else:
            raise DataError(
                f"{package} is no folder, no git repository, no .tar.gz file and no name of a"
                " package; write h11, h11==0.16.0, ./h11 or ./h11@v0.16.0"
            )
        inside = list(folder.iterdir())
        if not git and len(inside) == 1 and inside[0].is_dir():
            folder = inside[0]
        _check_size(package, (path.lstat().st_size for path in folder.rglob("*")))
        shutil.copytree(folder, tree, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for link in (path for path in tree.rglob("*") if path.is_symlink()):
        if not Path(os.path.realpath(link)).is_relative_to(tree.resolve()):
            link.unlink()


def path_and_commit(package: str) -> tuple[str, str]:
    """The path of a package, and the name of the commit that is taken of a git repository there."""
    before, _, after = package.rpartition("@")
    return (package, "HEAD") if Path(package).exists() or not before else (before, after)


def name_of(package: str) -> str:
    """A name for the tree of a package: `h11` of `h11==0.16.0`, `./h11/`, `h11-0.16.0.tar.gz`."""
    last = real_path(Path(package.rpartition("@")[0] or package)).name
    last = re.sub(r"(-\d[^-]*)?(\.tar\.gz|\.tgz)$|==.*$", "", last)
    return re.sub(r"[^A-Za-z0-9._-]", "_", last)


def source_files(tree: Path) -> Iterator[str]:
    """The files of a tree that bugs are put into: Python that is no test, document or script."""
    for file in sorted(tree.rglob("*.py")):
        path = PurePosixPath(file.relative_to(tree).as_posix())
        if is_source(path) and not file.is_symlink():
            yield str(path)


def is_source(path: PurePosixPath) -> bool:
    """Whether a path of a tree is that of a file that bugs are put into."""
    is_other = path.name in SETUP or OTHERS & {*path.parts[:-1]}
    return path.suffix == ".py" and not (is_test(path) or is_other)


def size_of(tree: Path) -> str:
    """How many lines the files have that bugs are put into, as a rung of SIZES."""
    lines = sum((tree / path).read_bytes().count(b"\n") for path in source_files(tree))
    return next((f"up to {most:,} lines" for most in SIZES if lines <= most), "more lines")


def is_test(path: PurePath) -> bool:
    """Whether pytest takes a file for one of tests by its name."""
    return path.name.startswith("test_") or path.stem.endswith("_test")


def _unpack(archive: Path, folder: Path) -> None:
    try:
        with tarfile.open(archive) as tar:
            _check_size(archive.name, (member.size for member in tar))
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"{archive} cannot be unpacked: {one_line(error)}") from None


def _check_size(name: str, sizes: Iterable[int]) -> None:
    total = 0
    for number, size in enumerate(sizes):
        total += size
        if number >= MOST_FILES or total > MOST_MB << 20:
            raise DataError(f"{name} has more than {MOST_FILES:,} files or {MOST_MB:,} MiB")


def _download(package: str, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
    _run([*pip, "-d", str(folder), package], f"pip cannot download the sources of {package}")
    archives = list(folder.glob("*.tar.gz"))
    if not archives:
        raise DataError(f"the source distribution of {package} is no .tar.gz file")
    return archives[0]


def _run(command: list[str], failure: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise DataError(f"{failure}: {one_line(error)}") from None
    if done.returncode:
        raise DataError(f"{failure}: {' '.join(done.stderr.strip().splitlines()[-1:])}")
