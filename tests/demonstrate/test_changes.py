"""Commands that make a right change: each way that fits gives the right files."""

from __future__ import annotations

import shutil
import subprocess
from difflib import SequenceMatcher, unified_diff
from pathlib import Path
from typing import Any

import pytest

from assay.demonstrate import changes
from assay.demonstrate.changes import (
    MOST_CHANGED,
    MOST_COMPARED,
    WAYS,
    Place,
    RightChange,
    by_python,
    by_sed,
    places_of,
    right_change,
)
from assay.judge.patches import NO_END, apply, lines_of, parse, unified

OLD = "import re\n\n\ndef f(a):\n    return a - 1\n\n\ndef g(a):\n    return a - 1\n"
PAIRS = {
    "one line": (OLD, OLD.replace("a - 1", "a + 1", 1)),
    "two equal lines": (OLD, OLD.replace("a - 1", "a + 1")),
    "a line more": (OLD, OLD.replace("    return a - 1\n", "    a = a + 1\n    return a\n", 1)),
    "a line less": (OLD, OLD.replace("import re\n", "")),
    "no last line end": (OLD[:-1], OLD[:-1].replace("a - 1", "2")),
    "signs": ("x = 'a/b|c'\ny = r\"\\.[*]&^$\"\n", "x = 'a/b|c'\ny = r\"\\.[*]&^\"\n"),
    "signs of sed": ('y = "a.[b]*&^$"\nz = 1\n', 'y = "a.[b]*&$"\nz = 1\n'),
    "the end of a document": ("a = 1\nEOF\n", "a = 2\nEOF\n"),
    "far apart": ("a = 1\n" + "# x\n" * 40 + "b = 1\n", "a = 2\n" + "# x\n" * 40 + "b = 2\n"),
    "a file of one line": ("a = 1\n", "a = 2\n"),
    "an empty file": ("", "a = 1\n"),
    "other line ends": ("a = 1\r\nb = 1\r\n", "a = 1\r\nb = 2\r\n"),
    "mixed line ends": ("a = 1\r\nb = 1\nc = '\r'\n", "a = 1\r\nb = 2\nc = '\r'\n"),
    "quotes": (
        'def f():\n    """One."""\n    return 1\n',
        'def f():\n    """Two."""\n    return 2\n',
    ),
}


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PAIRS)
def test_each_way_that_fits_makes_the_right_file(tmp_path: Path, name: str, way: str) -> None:
    old, new = PAIRS[name]
    path = {"one line": "a dir/it's.py", "two equal lines": "-a.py"}.get(name, "calc.py")
    change = RightChange({path: old}, {path: new})
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_bytes(old.encode())
    edits = WAYS[way](change)
    assert edits or way != "diff"
    for edit in edits:
        assert edit.path == path
        subprocess.run(["bash", "-c", edit.command], cwd=tmp_path, check=True)
    assert (tmp_path / path).read_bytes().decode() == (new if edits else old)


def test_a_way_that_does_not_fit_has_no_commands() -> None:
    def change(name: str) -> RightChange:
        return RightChange({"a.py": PAIRS[name][0]}, {"a.py": PAIRS[name][1]})

    assert by_sed(change("a line more")) == by_sed(change("no last line end")) == []
    assert by_python(change("quotes")) == by_python(change("signs")) == []
    assert len(by_python(change("two equal lines"))) == 2
    assert len(by_sed(change("signs of sed"))) == 1


def test_files_that_come_and_go_are_written_by_a_diff(tmp_path: Path) -> None:
    before: dict[str, str | None] = {"a.py": "a = 1\n", "b.py": None}
    reference = unified(before, {"a.py": None, "b.py": "b = 1\n"})
    change = right_change(reference, before.get)
    assert not change.is_of_places
    (tmp_path / "a.py").write_text("a = 1\n")
    (edit,) = WAYS["diff"](change)
    subprocess.run(["bash", "-c", edit.command], cwd=tmp_path, check=True)
    assert [file.name for file in tmp_path.iterdir()] == ["b.py"]
    assert (tmp_path / "b.py").read_text() == "b = 1\n"


def numbered(count: int, *others: int) -> str:
    """Lines of numbers, of which these are others."""
    return "".join(f"{n}{'!' * (n in others)}\n" for n in range(count))


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of lines that are compared, in order."""
    counts: list[int] = []

    def matcher(junk: None, lines: list[str], others: list[str], **words: Any) -> object:
        counts.append(len(lines) + len(others))
        return SequenceMatcher(junk, lines, others, **words)

    monkeypatch.setattr(changes, "SequenceMatcher", matcher)
    monkeypatch.setattr("difflib.SequenceMatcher", matcher)
    return counts


def test_texts_are_compared_once_and_only_where_they_differ(compared: list[int]) -> None:
    change = RightChange({"a": numbered(900)}, {"a": numbered(900, 300, 309)})
    assert compared == [20]
    assert [place.line for place in change.places] == [301, 310]
    assert [len(way(change)) for way in WAYS.values()] == [1, 2, 2]
    assert compared == [20]


@pytest.mark.parametrize("count", [MOST_CHANGED, MOST_COMPARED])
def test_texts_that_differ_too_much_are_not_compared_but_written_by_one_diff(
    count: int, compared: list[int]
) -> None:
    differing = range(1, count) if count == MOST_CHANGED else (1, count - 1)
    old, new = numbered(count), numbered(count, *differing)
    change = RightChange({"a": old}, {"a": new})
    assert compared == []
    (place,) = change.places
    assert (place.line, len(place.old), len(place.new)) == (2, count - 1, count - 1)
    assert not change.is_of_places
    assert apply(parse(change.diff()), {"a": old}.get) == {"a": new}


def test_a_few_changes_of_a_long_file_are_places() -> None:
    change = RightChange({"a": numbered(9000)}, {"a": numbered(9000, 7, 8500)})
    assert change.is_of_places
    assert [place.line for place in change.places] == [8, 8501]


@pytest.mark.parametrize("name", PAIRS)
def test_a_diff_is_what_difflib_writes(name: str) -> None:
    old, new = PAIRS[name]
    wanted = unified_diff(lines_of(old), lines_of(new), "a/f", "b/f", n=3)
    ended = "".join(line if line.endswith("\n") else f"{line}\n{NO_END}\n" for line in wanted)
    assert RightChange({"f": old}, {"f": new}).diff() == ended


def test_an_added_and_a_removed_line_are_places_without_others() -> None:
    assert places_of("f", "a\nc\n", "a\nb\nc\n") == [Place("f", 2, (), ("b\n",))]
    assert places_of("f", "a\nb\nc\n", "a\nc\n") == [Place("f", 2, ("b\n",), ())]
    assert places_of("f", "a\n", "a\n") == []
