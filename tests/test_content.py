"""One call names the content of files, of trees and of models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.config.sections import PolicySettings
from assay.content import digest_of
from assay.policy.source import source_of

SIZE = 70 << 20
"""Once, no larger file was read whole."""
CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte": lambda model: (model / "b").write_bytes(b"c"),
    "a name": lambda model: (model / "b").rename(model / "c"),
    "another file": lambda model: (model / "c").write_bytes(b""),
    "a file less": lambda model: (model / "b").unlink(),
    "two names swapped": lambda model: [(model / "a").rename(model / "x"),
                                        (model / "b").rename(model / "a"),
                                        (model / "x").rename(model / "b")],
    "what a link leads to": lambda model: (model / "../blob").write_bytes(b"y"),
}  # fmt: skip
SAME: dict[str, Callable[[Path], object]] = {
    "rights": lambda model: (model / "a").chmod(0o600),
    "times": lambda model: (model / "a").touch(),
    "a link in place of a file": lambda model: (model / "b").symlink_to(
        (model / "b").rename(model.parent / "other")
    ),
    "a folder beside": lambda model: (model / ".cache").mkdir(),
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a").write_bytes(b"a")
    (folder / "b").write_bytes(b"b")
    (tmp_path / "blob").write_bytes(b"x")
    (folder / "linked").symlink_to("../blob")
    return folder


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_is_another_one_with_other_names_or_bytes(name: str, model: Path) -> None:
    before = digest_of(model, as_tree=False)
    CHANGES[name](model)
    assert digest_of(model, as_tree=False) != before


@pytest.mark.parametrize("name", SAME)
def test_a_model_is_the_same_one_in_another_place(name: str, model: Path) -> None:
    before, tree = digest_of(model, as_tree=False), digest_of(model)
    SAME[name](model)
    assert digest_of(model, as_tree=False) == before
    assert digest_of(model) != tree or name == "times", "a program can tell these apart"


@pytest.mark.parametrize("place", [0, SIZE // 3, SIZE // 2 + 12345, SIZE - 1])
def test_one_byte_of_a_large_file_is_another_content(place: int, tmp_path: Path) -> None:
    digests = set()
    for byte in (b"", b"\1"):
        with (tmp_path / "model.safetensors").open("wb") as file:
            file.truncate(SIZE)
            file.seek(place)
            file.write(byte)
        digests |= {digest_of(tmp_path, as_tree=False), digest_of(tmp_path)}
    assert len(digests) == 4


def test_a_file_has_one_name_whoever_asks(tmp_path: Path) -> None:
    """So a GGUF file is the model that is converted from it."""
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    for file in (first, second):
        file.write_bytes(b"GGUF")
    second.chmod(0o600)
    digest = source_of(PolicySettings(model=str(first))).digest
    assert {digest_of(first), digest_of(first, as_tree=False), digest_of(second)} == {digest}


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        digest_of(tmp_path / "absent")
