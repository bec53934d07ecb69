"""Folders with a design each: RTLLM's (arXiv:2308.05345) and VeriGenLLM-v2's. Their test benches
check by themselves, so a pass is forgeable.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from assay.errors import DataError
from assay.languages import language_named
from assay.tasks import require_split, task_set
from assay.tasks.verilog_eval import DUMPS, design_task, warn_of_version
from assay.types import Task, TestBench

PASSED, SUMMARY = "your design passed", "Test Summary: #/# tests passed"
MODULE = re.compile(r"^[ \t]*module\s+(\w+)", re.MULTILINE)
DATA = re.compile(r'"([\w-]+(?:\.[\w-]+)+)"')
"""A file that a bench names, in its own folder."""
PROMPTS = ("prompt1", "prompt2", "prompt3")


@task_set
def rtllm(split: str = "all") -> Iterator[Task]:
    """RTLLM: folders with design_description.txt, testbench.v and verified_*.v (arXiv:2308.05345).

    `split` may be the path of a folder.
    """
    for bench in _files("rtllm", "" if split == "all" else split, "testbench.v"):
        prompt = _text(bench.with_name("design_description.txt"))
        match = re.search(r"Module name:\s*(\w+)", prompt)
        reference = _one(bench.parent, "verified_*.v")
        if match is None:
            raise DataError(f"{bench.parent}: the description names no module; add `Module name:`")
        for top in _tops(reference or "", match[1])[-1:]:
            reference = re.sub(rf"\b{top}\b", match[1], reference or "")
        yield _task(bench, prompt, "", match[1], PASSED, reference)


@task_set
def verigenllm(split: str = "prompt3") -> Iterator[Task]:
    """VeriGenLLM-v2: folders with prompt1_*.v (vague) to prompt3_*.v (detailed) and tb_*.v.

    `split` is which prompt, and may name a folder: `prompt2@FOLDER`.
    """
    which, _, folder = split.partition("@")
    require_split("verigenllm", which, PROMPTS)
    for bench in _files("verigenllm", folder, "tb_*.v"):
        stub = (_one(bench.parent, f"{which}_*.v") or "").rstrip() + "\n"
        design = next(iter(MODULE.findall(stub)), "")
        if not design:
            raise DataError(f"{bench.parent}: no {which}_*.v that begins a module; add one")
        yield _task(bench, stub, stub, design, SUMMARY, _one(bench.parent, "answer_*.v"))


def _files(name: str, folder: str, pattern: str) -> list[Path]:
    """The test benches below a folder; without one, below that of the set's name in $ASSAY_DATA."""
    warn_of_version()
    root = Path(folder or Path(os.environ.get("ASSAY_DATA", ""), name))
    paths = sorted(root.rglob(pattern))
    if not paths:
        raise DataError(
            f"{root} holds no {pattern}; set ASSAY_DATA to a folder that holds {name}, or give the"
            " path of the set's folder"
        )
    return paths


def _one(folder: Path, pattern: str) -> str | None:
    return next(map(_text, sorted(folder.glob(pattern))), None)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace").replace("\r\n", "\n")
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}") from error


def _task(
    file: Path, prompt: str, stub: str, design: str, passes: str, reference: str | None
) -> Task:
    bench = DUMPS.sub(";", _text(file))
    for top in _tops(bench, design)[-1:]:
        bench = re.sub(rf"\b{top}\b", "tb", bench)
    beside = {name: file.with_name(name) for name in DATA.findall(bench)}
    data = {name: _text(path) for name, path in beside.items() if path.is_file()}
    check = TestBench(bench, design, passes=passes, data=data)
    return design_task(file.parent.name, prompt, check, stub, reference)


def _tops(source: str, design: str) -> list[str]:
    """The modules that no module of a source uses; none where it has the design itself."""
    names, code = MODULE.findall(source), language_named("verilog").blanked(source)
    uses = Counter(re.findall(r"\w+", code))
    return [name for name in names if uses[name] == 1] if design not in names else []
