"""A file of lines: what opening it leaves as it is, what it cuts off, and when it is removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay import line_file
from assay.errors import DataError, SettingsError
from assay.files import lock, remove
from assay.line_file import LineFile

START = b'{"id": '


def opened(path: Path, took: list[bytes] | None = None) -> LineFile:
    return LineFile(path, "command", START, (list[bytes]() if took is None else took).append)


def after_one_line(path: Path, held: bytes) -> tuple[list[bytes], bytes]:
    """The lines that a file with these bytes gives, and its bytes when one more is appended."""
    path.write_bytes(held)
    took: list[bytes] = []
    file = opened(path, took)
    file.append('{"id": 9}')
    file.close()
    return took, path.read_bytes()


def test_half_a_line_at_the_end_is_cut_off_and_a_whole_one_gets_its_end(tmp_path: Path) -> None:
    one, two, nine = b'{"id": 1}', b'{"id": 2}', b'{"id": 9}\n'
    for half in (b"{", b'{"id": ', b'{"id": "\xc3', b"\0" * 9, b'{"id": \0\0'):
        held = after_one_line(tmp_path / "file", one + b"\n" + half)
        assert held == ([one], one + b"\n" + nine)
    held = after_one_line(tmp_path / "file", one + b"\n" + two)
    assert held == ([one, two], one + b"\n" + two + b"\n" + nine)
    assert after_one_line(tmp_path / "file", b"") == ([], nine)
    assert after_one_line(tmp_path / "file", b"notes")[0] == [b"notes"], "no line begins so"


def test_a_file_whose_lines_are_refused_stays_as_it_is_and_is_free(tmp_path: Path) -> None:
    def refuse(line: bytes) -> None:
        raise DataError("no")

    path = tmp_path / "file"
    path.write_bytes(b'{"my": 1}\n{"id": "hal')
    with pytest.raises(DataError):
        LineFile(path, "command", START, refuse)
    assert path.read_bytes() == b'{"my": 1}\n{"id": "hal'
    opened(path).close()


def test_only_an_empty_file_that_was_made_here_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    opened(path).close_or_remove()
    assert not path.exists()
    path.touch()
    opened(path).close_or_remove()
    assert path.exists(), "it was there before"
    path.unlink()
    file = opened(path)
    file.append('{"id": 1}')
    file.close_or_remove()
    assert path.exists(), "it holds a line"
    path.unlink()
    file = opened(path)
    path.unlink()
    path.write_text("another file")
    file.close_or_remove()
    assert path.read_text() == "another file"


def test_a_file_is_removed_while_no_other_writer_can_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_beside_another(path: Path) -> None:
        with pytest.raises(SettingsError):
            opened(path)
        remove(path)

    monkeypatch.setattr(line_file, "remove", remove_beside_another)
    opened(tmp_path / "file").close_or_remove()
    assert not (tmp_path / "file").exists()


def test_a_writer_that_opens_a_file_before_it_is_removed_makes_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(tmp_path / "file")

    def lock_after_the_first(file: Any) -> bool:
        monkeypatch.setattr(line_file, "lock", lock)
        first.close_or_remove()
        return lock(file)

    monkeypatch.setattr(line_file, "lock", lock_after_the_first)
    second = opened(tmp_path / "file")
    second.append('{"id": 1}')
    second.close_or_remove()
    assert (tmp_path / "file").read_text() == '{"id": 1}\n'


def test_what_was_read_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b'{"id": 1}\n' * 3)
    took: list[bytes] = []
    file = opened(path, took)
    assert took == [b'{"id": 1}'] * 3
    assert not any(isinstance(value, list) for value in vars(file).values())
    file.close()
