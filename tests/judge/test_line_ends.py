"""A right change counts whatever the line ends of its files, and of who wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from assay.evaluate.grade import grade
from assay.extract.edits import patch
from assay.judge.line_ends import plain, with_line_ends
from assay.judge.patches import apply, parse, unified
from assay.tasks import load
from tests.repositories import FILES, FIXES, OTHERS, SOURCE, write_tree

LINES = SOURCE.replace("\n", "\r\n")
SOURCES = {
    "line feeds": SOURCE,
    "carriage returns": LINES,
    "mixed": "".join(
        line.replace("\n", "\r\n") if at % 3 else line
        for at, line in enumerate(SOURCE.splitlines(keepends=True))
    ),
    "no end": LINES.removesuffix("\r\n"),
    "mark": "\ufeff" + SOURCE,
    "mark and returns": "\ufeff" + LINES,
    "returns alone": SOURCE.replace("\n", "\r"),
    "a form feed": LINES.replace("\r\n\r\n\r\n", "\r\n\x0c\r\n\r\n", 1),
}  # fmt: skip
NAME = "src/calc/__init__.py"


def fixed(source: str) -> str:
    return source.replace("a - b", "a + b")


def as_git_does(source: str) -> str:
    return unified({NAME: source}, {NAME: fixed(source)})


def as_a_chat_does(source: str) -> str:
    return unified({NAME: plain(source)}, {NAME: fixed(plain(source))})


def without_spaces(source: str) -> str:
    lines = as_a_chat_does(source).split("\n")
    return "\n".join(line.rstrip(" ") for line in lines)


def sent_as_windows_text(source: str) -> str:
    return as_a_chat_does(source).replace("\n", "\r\n")


def in_an_answer(source: str) -> str:
    return f"Here it is:\n\n```diff\n{as_a_chat_does(source)}```\n"


DIFFS = (as_git_does, as_a_chat_does, without_spaces, sent_as_windows_text)


@pytest.mark.parametrize("written", [*DIFFS, in_an_answer])
@pytest.mark.parametrize("name", SOURCES)
def test_a_reply_changes_one_line_and_no_line_end(name: str, written: object) -> None:
    source = SOURCES[name]
    assert callable(written)
    diff = patch(written(source), {NAME: source}.get)
    assert apply(parse(diff), {NAME: source}.get) == {NAME: fixed(source)}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_blocks_change_one_line_and_no_line_end(name: str, ends: str) -> None:
    source = SOURCES[name]
    block = (
        f"### {NAME}\n<<<<<<< SEARCH\n    return a - b\n=======\n    # added\n    return a + b\n"
        ">>>>>>> REPLACE\n"
    ).replace("\n", ends)
    diff = patch(block, {NAME: source}.get)
    (text,) = apply(parse(diff), {NAME: source}.get).values()
    assert text
    assert len(text) - len(source) in (len("    # added") + 1, len("    # added") + 2)
    assert text.replace("    # added\r\n", "").replace("    # added\n", "").replace(
        "    # added\r", ""
    ) == fixed(source)


def test_a_moved_and_a_new_line_keep_the_ends_of_their_neighbours() -> None:
    assert with_line_ends("a\r\nb\nc\r\n", "a\nnew\nb\nc\nmore\n") == (
        "a\r\nnew\r\nb\nc\r\nmore\r\n"
    )
    assert with_line_ends("a\r\nb", "a\nb\nc") == "a\r\nb\r\nc"
    assert with_line_ends("", "a\n") == "a\n"


@pytest.mark.parametrize(
    ("field", "names", "forms"),
    [
        ("solution", ["carriage returns"], DIFFS[:1]),
        ("reply", ["mixed"], DIFFS[1:2]),
        pytest.param("solution", SOURCES, DIFFS, marks=pytest.mark.long),
        pytest.param("reply", SOURCES, DIFFS, marks=pytest.mark.long),
        pytest.param("completion", SOURCES, DIFFS, marks=pytest.mark.long),
    ],
)
def test_right_diffs_of_files_with_any_line_ends_pass_the_grade(
    tmp_path: Path, field: str, names: Iterable[str], forms: tuple[Any, ...]
) -> None:
    rows, samples = [], []
    for number, name in enumerate(names):
        source, tree = SOURCES[name], write_tree(tmp_path / str(number))
        (tree / NAME).write_bytes(source.encode())
        for written in forms:
            task = f"{name}, {written.__name__}"
            rows.append({
                "id": task, "prompt": "Repair add.", "tree": str(number),
                "fail_to_pass": FIXES[:1], "pass_to_pass": OTHERS[:1],
            })  # fmt: skip
            samples.append({"task_id": task, field: written(source)})
    files = tmp_path / "tasks.jsonl", tmp_path / "samples.jsonl"
    for file, lines in zip(files, (rows, samples), strict=True):
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    graded = grade(files[1], load(str(files[0])))
    verdicts = map(json.loads, Path(graded.file).read_text().splitlines())
    failed = {row["task_id"]: row["detail"] for row in verdicts if row["verdict"] != "pass"}
    assert (failed, graded.samples) == ({}, len(rows))


def test_a_diff_whose_lines_are_not_those_of_the_file_does_not_fit(tmp_path: Path) -> None:
    assert FILES[NAME] == SOURCE
    with pytest.raises(ValueError, match="does not match"):
        patch(as_git_does(SOURCE).replace("a - b", "a * b"), {NAME: LINES}.get)
