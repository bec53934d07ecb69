"""Caches in memory stay within their bytes."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import pytest

from assay.bounded import MIB, BoundedDict, bounded_cache, size_of
from assay.judge import test_code
from assay.judge.shared_work import SharedWork
from assay.sandbox.processes import Executable
from assay.viewer import file_cache


@dataclass(frozen=True, slots=True)
class Holder:
    """A value that holds others."""

    parts: object


def test_the_size_of_a_value_is_that_of_all_that_it_holds() -> None:
    text = "x" * MIB
    for value in ([text], {1: text}, {text: 1}, Holder((text,)), [Holder({"a": {text}})]):
        assert MIB < size_of(value) < MIB + 4096
    assert size_of([text, text, Holder(text)]) < MIB + 4096, "what is held twice counts once"
    assert size_of(Executable(bytes(MIB))) > MIB, "a file in memory counts"


def test_the_oldest_entries_go_until_the_bytes_fit_and_the_newest_stays() -> None:
    kept: BoundedDict[int, str] = BoundedDict(100, 2.5)
    for number in range(5):
        kept[number] = "x" * MIB
    assert list(kept) == [3, 4]
    assert kept.bytes < 2.5 * MIB
    kept[4] = "short"
    del kept[3]
    assert kept.bytes < 1000
    kept[5] = "x" * 4 * MIB
    assert list(kept) == [5]


def test_work_that_is_shared_is_weighed_once_it_is_done() -> None:
    async def make() -> bytes:
        return bytes(MIB)

    async def kept() -> list[int]:
        shared: SharedWork[int, bytes] = SharedWork(100, 2.5)
        for number in range(5):
            await shared.get_or_make(number, make)
        return list(shared)

    assert asyncio.run(kept()) == [3, 4]


def test_a_function_is_asked_again_for_what_did_not_fit() -> None:
    asked = list[str]()

    @bounded_cache(100, 2.5)
    def doubled(text: str) -> str:
        asked.append(text[:1])
        return text

    for letter in "aabca":
        assert doubled(letter * MIB) == letter * MIB
    assert "".join(asked) == "abca"


def test_code_of_tests_stays_within_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many large pieces, or one that is larger than the bound, which stays while it is in use."""
    monkeypatch.setattr(test_code, "COMPILED", BoundedDict(64, 1, test_code.weight_of))
    small, large = "x = 1\n" * 1000, "y = 2\n" * 20_000
    for number in range(30):
        assert test_code.compiled(f"{small}# {number}", "a") is test_code.compiled(
            f"{small}# {number}", "a"
        )
    assert 5 < len(test_code.COMPILED) < 20
    assert test_code.COMPILED.bytes < MIB
    assert test_code.compiled(large, "a") is test_code.compiled(large, "a")
    assert list(test_code.COMPILED) == [(large, "a")]
    assert test_code.compiled("x = 1", "a") is not test_code.compiled("x = 1", "b")
    with pytest.raises(SyntaxError):
        test_code.compiled("x =", "a")


@pytest.mark.parametrize(
    "source",
    ["f(1)\n" * 5000, "x = 1\n" * 5000, f"x = [{', '.join(map(str, range(1000, 9000)))}]",
     "def g(a):\n" + "    assert f(a, 'b') == [1, 2.5]\n" * 2000, "if a:\n    b()\n" * 1000],
)  # fmt: skip
def test_code_takes_no_more_than_is_assumed(source: str) -> None:
    def size(part: object, seen: set[int]) -> int:
        if id(part) in seen:
            return 0
        seen.add(id(part))
        names = [name for name in dir(part) if name.startswith("co_") and name != "co_code"]
        parts = [getattr(part, name) for name in names if isinstance(part, CodeType)
                 if not callable(getattr(part, name))]  # fmt: skip
        parts += part if isinstance(part, tuple) else []
        return sys.getsizeof(part) + sum(size(each, seen) for each in parts)

    code = compile(source, "a", "exec")
    assert size(code, set()) < test_code.weight_of((source, "a"))


def test_what_the_viewer_has_read_stays_within_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_cache, "PARSED_MB", 0.1)
    cache, reads, absent = file_cache.FileCache(tmp_path), list[str](), list[str]()

    def parse(file: Path) -> list[str]:
        reads.append(file.name)
        return file.read_text().split()

    files = [tmp_path / str(number) for number in range(8)]
    for file in files:
        file.write_text("word " * 1000)
    for file in (*files, files[-1], files[0]):
        assert cache.read(file, parse, absent) == ["word"] * 1000
    assert reads == [*"01234567", "0"], "the newest stays, the oldest is read again"
    assert cache._parsed.bytes < 0.1 * MIB


def test_a_file_of_which_little_is_kept_weighs_little(tmp_path: Path) -> None:
    """Of Parquet files, which may be large, the viewer keeps whether they can be read."""
    cache = file_cache.FileCache(tmp_path)
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 30)
    assert cache.read(tmp_path / "a", lambda _: True, False)
    assert cache._parsed.bytes < 10_000


def test_whatever_takes_an_entry_out_takes_its_bytes_too() -> None:
    kept: BoundedDict[str, str] = BoundedDict(100, 1)
    kept.update(a="x" * 100, b="y", c="z")
    before = kept.bytes
    assert kept.pop("a") == "x" * 100
    assert before - kept.bytes > 100
    assert kept.pop("absent", "nothing") == "nothing"
    assert kept.popitem() == ("c", "z")
    assert kept.popitem(last=False) == ("b", "y")
    assert kept.bytes == 0
    kept["d"] = "x"
    kept.clear()
    assert (len(kept), kept.bytes) == (0, 0)
