"""The code of a module of the user's: its file, and what it imports from its package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay import plugin_code
from assay.imported_files import imported_files
from assay.plugin_code import code_of

IN_PACKAGE = {
    "acme_of_test/__init__.py": "",
    "acme_of_test/kind.py": "class Thing:\n    def judge(self):\n        from . import later\n",
    "acme_of_test/later.py": "from acme_of_test.deep.last import x",
    "acme_of_test/deep/__init__.py": "from ..base import *",
    "acme_of_test/deep/last.py": "x = 1",
    "acme_of_test/base.py": "import acme_of_test.kind, none_such.at_all",
    "acme_of_test/other.py": "x = 1",
    "beside_of_test.py": "x = 1",
}
BESIDE = {
    "kind_of_test.py": "class Thing:\n    def judge(self):\n        import beside_of_test, json\n",
    "beside_of_test.py": "from library_of_test.part import x",
    "library_of_test/__init__.py": "x = 1",
    "library_of_test/part.py": "x = 1",
    "other_of_test.py": "x = 1",
}
Code = Callable[[str, dict[str, str]], str]


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Code]:
    """The code of the class in a module, as another process would load it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)

    def load(module: str, files: dict[str, str]) -> str:
        forget()
        for name, source in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(source)
        importlib.invalidate_caches()
        return code_of(importlib.import_module(module).Thing)

    yield load
    forget()


def forget() -> None:
    for known in (sys.modules, plugin_code.SOURCES, plugin_code.IMPORTED):
        for name in [name for name in known if "of_test" in name]:
            del known[name]


@pytest.mark.parametrize(
    ("module", "files", "others"),
    [
        ("acme_of_test.kind", IN_PACKAGE, {"acme_of_test/other.py", "beside_of_test.py"}),
        ("kind_of_test", BESIDE,
         {"library_of_test/__init__.py", "library_of_test/part.py", "other_of_test.py"}),
    ],
)  # fmt: skip
def test_a_class_has_other_code_once_a_file_differs_that_it_imports_of_its_package(
    module: str, files: dict[str, str], others: set[str], code: Code
) -> None:
    before = code(module, files)
    for name, source in files.items():
        changed = code(module, files | {name: f"{source}\ny = 2"})
        assert (changed == before) == (name in others), name
    assert code(module, files) == before


def test_an_edit_after_a_class_was_first_seen_is_of_the_next_process(
    tmp_path: Path, code: Code
) -> None:
    before = code("acme_of_test.kind", IN_PACKAGE)
    (tmp_path / "acme_of_test/later.py").write_text("y = 2")
    assert code_of(sys.modules["acme_of_test.kind"].Thing) == before


@pytest.mark.parametrize("source", [b"def f(:", b"\0", b"\xff\xfe", b"from ....up import x"])
def test_a_file_that_cannot_be_parsed_counts_and_imports_nothing(
    source: bytes, tmp_path: Path
) -> None:
    (tmp_path / "first.py").write_text("import second")
    (tmp_path / "second.py").write_bytes(source)
    assert set(imported_files("first", tmp_path / "first.py")) == {"first", "second"}


def test_a_module_that_a_loader_took_from_an_odd_place_is_its_file(tmp_path: Path) -> None:
    file = tmp_path / "build_3.py"
    file.write_text("import build_3")
    assert imported_files("acme.kinds.words", file) == {"acme.kinds.words": file}
    assert imported_files("a.b.c.d.e.f.g.h.i.j.k.l.m", Path("x.py")).values()
