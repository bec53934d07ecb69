"""Commands that make a right change: each way that fits gives the right files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from assay.demonstrate.changes import WAYS, RightChange, by_python, by_sed, right_change
from assay.judge.patches import unified

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
    path = "a dir/it's.py" if name == "one line" else "calc.py"
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
