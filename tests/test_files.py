"""Whole files or none, also when the writer is killed or the disk refuses."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.files import remove_leftovers, replacing, write_atomically
from assay.os_errors import advice, error_number


def run(code: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize(("data", "expected"), [(b"\x00\r\n", b"\x00\r\n"), ("é\n", b"\xc3\xa9\n")])
def test_a_file_holds_exactly_what_was_written_and_nothing_stays_beside_it(
    tmp_path: Path, data: bytes | str, expected: bytes
) -> None:
    file = tmp_path / "new" / "report.json"
    write_atomically(file, "old")
    write_atomically(file, data)
    assert file.read_bytes() == expected
    assert names(file.parent) == ["report.json"]


def test_a_block_that_raises_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    write_atomically(file, "old")

    def interrupted() -> None:
        with replacing(file) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_text() == "old"
    assert names(tmp_path) == ["report.json"]


def test_readers_see_the_old_file_until_the_block_ends(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    write_atomically(file, "old")
    with replacing(file) as partial:
        partial.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"


def test_a_writer_killed_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    write_atomically(file, "old")
    done = run(
        "import os, signal, sys; from pathlib import Path; from assay.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as partial:\n"
        "    partial.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)",
        file,
    )
    assert done.returncode == -9, done.stderr
    assert file.read_text() == "old"
    assert len(names(tmp_path)) == 2
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["report.json"]


def test_a_disk_that_refuses_half_way_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "report.json"
    write_atomically(file, "old")
    done = run(
        "import resource, sys; from pathlib import Path; from assay.files import write_atomically\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "write_atomically(Path(sys.argv[1]), 'x' * 100_000)",
        file,
    )
    assert "OSError" in done.stderr
    assert file.read_text() == "old"
    assert names(tmp_path) == ["report.json"]


def test_an_error_of_a_library_that_has_a_number_alone_is_one_of_the_operating_system(
    tmp_path: Path,
) -> None:
    with pytest.raises(OSError, match="No space") as raised, replacing(tmp_path / "model"):
        raise Exception("I/O error: No space left on device (os error 28)")
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(tmp_path / "model"))
    with pytest.raises(KeyError), replacing(tmp_path / "model"):
        raise KeyError("a defect stays what it is")
    assert names(tmp_path) == []


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_of_a_folder_are_as_readable_as_the_folder(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with replacing(tmp_path / "model") as partial:
            (partial / "part").mkdir(parents=True)
            for file in (partial / "plain", partial / "weights", partial / "part" / "weights"):
                file.touch(0o600 if file.name == "weights" else 0o666)
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert modes == {0o666 & ~mask}


def test_what_a_folder_links_to_stays_as_private_as_it_was(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    with replacing(tmp_path / "model") as partial:
        partial.mkdir()
        (partial / "link").symlink_to(secret)
    assert secret.stat().st_mode & 0o777 == 0o600


def test_a_folder_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    for step in ("1", "2"):
        with replacing(tmp_path / "model") as partial:
            (partial / "inner").mkdir(parents=True)
            (partial / "inner" / step).write_text(step)
    assert names(tmp_path) == ["model"]
    assert names(tmp_path / "model" / "inner") == ["2"]


def test_a_file_never_takes_the_place_of_a_folder(tmp_path: Path) -> None:
    write_atomically(tmp_path / "runs" / "metrics.jsonl", "1\n")
    with pytest.raises(IsADirectoryError) as raised:
        write_atomically(tmp_path / "runs", "<html>")
    assert raised.value.filename == str(tmp_path / "runs")
    assert names(tmp_path) == ["runs"]
    assert names(tmp_path / "runs") == ["metrics.jsonl"]


@pytest.mark.parametrize("name", [".", "..", "new/.."])
def test_nothing_takes_the_place_of_the_working_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IsADirectoryError), replacing(Path(name)) as partial:
        partial.mkdir()
    assert names(tmp_path) == []


def test_a_block_that_makes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "model"):
        pass


@pytest.mark.parametrize(
    ("error", "what_to_do"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "make room and run"),
        (Exception("No space left on device (os error 28)"), "make room and run"),
        (OSError(errno.EFBIG, "File too large"), "raise the limit (`ulimit -f`)"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "choose another path"),
        (OSError(errno.EIO, "Input/output error"), "run the same command again"),
    ],
    ids=lambda value: str(value),
)
def test_an_error_of_the_disk_says_what_to_do(error: Exception, what_to_do: str) -> None:
    assert error_number(error) is not None
    assert advice(error).startswith(what_to_do)


def test_other_errors_are_not_taken_for_errors_of_the_disk() -> None:
    assert error_number(ValueError("28")) is None
