"""The files that a test and a program share, as changes between two folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from assay.judge.codec_types import CodecError
from assay.judge.shared_files import SharedFiles


@pytest.fixture
def side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SharedFiles:
    """In a folder `here`, which has a file `é` and a link `way` to the folder `in`."""
    for name in ("chmod", "utime"):
        monkeypatch.setattr(os, name, getattr(os, name))
    here = tmp_path / "here"
    (here / "in").mkdir(parents=True)
    (here / "é").write_text("x")
    (here / "way").symlink_to("in")
    (here / "out").symlink_to(tmp_path)
    monkeypatch.chdir(here)
    return SharedFiles()


def test_changes_are_told_once_and_links_never(side: SharedFiles) -> None:
    assert sorted(side.tell()) == [["in/", 0, b""], ["é", 0o644, b"x"]]
    assert side.tell() == []
    Path("in/a").write_text("y")
    Path("é").unlink()
    assert side.tell() == [["é", 0, None], ["in/a", 0o644, b"y"]]
    side.take([["in/a", 0, None], ["in/", 0, None], ["b/", 0, b""], ["b/c", 0o400, b"z"]])
    assert side.tell() == []
    assert (Path("b/c").read_bytes(), Path("b/c").stat().st_mode & 0o777) == (b"z", 0o400)
    assert not Path("in").exists()


@pytest.mark.parametrize(
    "name",
    ["../x", "/x", "", "/", ".", "..", "in/../é", "in//x", "./x", "way/x", "out/x", "in/..",
     "\udcc3\udca9", "x\0", "no/x", "x" * 300, 3, None, ["x"]],
)  # fmt: skip
def test_a_file_has_one_name_and_lies_in_the_folder(
    name: Any, side: SharedFiles, tmp_path: Path
) -> None:
    with pytest.raises(CodecError):
        side.take([[name, 0o644, b"y"]])
    assert {one.name for one in tmp_path.rglob("*")} == {"here", "in", "é", "way", "out"}
    assert Path("é").read_text() == "x"


@pytest.mark.parametrize(
    "changes", [3, [3], [["x"]], [["x", "y", b""]], [["x", 0, "y"]], [["x", 0, b"", 1]], [[]]]
)
def test_what_is_no_change_is_refused(changes: Any, side: SharedFiles) -> None:
    with pytest.raises(CodecError):
        side.take(changes)


def test_of_a_file_that_both_have_changed_the_tests_counts(side: SharedFiles) -> None:
    Path("a").write_text("program")
    Path("é").write_text("program")
    side.take([["é", 0o644, b"test"], ["in/", 0, b""]])
    assert side.tell() == [["a", 0o644, b"program"]]
    assert Path("é").read_text() == "test"


def test_a_file_that_replaces_a_link_is_not_written_through_it(side: SharedFiles) -> None:
    side.take([["way", 0o644, b"y"], ["in/x", 0o644, b"z"]])
    assert not Path("way").is_symlink()
    assert Path("in/x").read_text() == "z"


def test_permissions_change_as_by_os_chmod(side: SharedFiles) -> None:
    os.chmod("é", 0o444)  # noqa: PTH101
    assert Path("é").stat().st_mode & 0o777 == 0o444
    Path("é").chmod(0o644)
    Path("in").chmod(0o700)
    assert Path("é").read_text() == "x"
