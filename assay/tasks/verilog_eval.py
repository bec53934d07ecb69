"""VerilogEval: HDLBits's problems with test benches; version 1 (arXiv:2309.07544) and version 2
(arXiv:2408.11053).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace

from assay.errors import DataError
from assay.languages import language_named
from assay.tasks import task_set
from assay.tasks.rows import PublicSet, Row, warn_once
from assay.types import Task, TestBench

ICARUS = "version 11."
"""The figures in docs/measured/public-sets.md are of this version. Version 2 of the set asks for
12, and 13 refuses some benches.
"""
FILES = {
    "human": "v1/VerilogEval_Human", "machine": "v1/VerilogEval_Machine",
    "code_complete": "v2/dataset_code-complete-iccad2023", "spec_to_rtl": "v2/dataset_spec-to-rtl",
}  # fmt: skip
MOST = 200_000
"""Samples that are compared: version 2 ends its longest benches there, version 1 at twice that."""
DUMPS = re.compile(r"\$dump\w+\s*(?:\([^;]*\))?\s*;")
"""Statements that write a file of all signals."""
DESCRIBED = {name: f"v1/VerilogDescription_{name.title()}" for name in ("human", "machine")}
HUB = "NVlabs/verilog-eval"
VERILOG_EVAL = PublicSet("verilog_eval", "verilog_eval/{}.jsonl.gz", HUB, splits=FILES)
DESCRIPTIONS = replace(VERILOG_EVAL, splits=DESCRIBED)


@task_set
def verilog_eval(split: str = "spec_to_rtl") -> Iterator[Task]:
    """VerilogEval: version 1 (human, machine), version 2 (code_complete, spec_to_rtl)."""
    warn_of_version()
    described = DESCRIPTIONS.rows(split) if split in DESCRIPTIONS.splits else ()
    descriptions = {row.text("task_id"): row for row in described}
    for row in VERILOG_EVAL.rows(split):
        if "canonical_solution" in row.fields:
            yield task_of_v1(row, descriptions.get(row.text("task_id"), row))
        else:
            yield task_of_v2(row)


def warn_of_version() -> None:
    """Log a warning where another version of Icarus Verilog is installed than figures are for."""
    with contextlib.suppress(DataError):  # none is installed: the judge says so
        for version in language_named("verilog").versions():
            if ICARUS not in version:
                warn_once(
                    "the figures in docs/measured/public-sets.md are for Icarus Verilog 11, not"
                    f" {version}"
                )


def task_of_v1(row: Row, described: Row) -> Task:
    """A row of version 1. Its prompt is the head of `top_module`; the description is a row of
    another file. Raises DataError.
    """
    head = row.text("prompt")
    stub = f"{_comment(described.text('detail_description', ''))}{head}"
    return _task(row, stub, stub, head + row.text("canonical_solution"), "reference_module")


def task_of_v2(row: Row) -> Task:
    """A row of version 2, whose design is called `TopModule`. Raises DataError."""
    prompt, head = row.text("prompt").strip(), row.text("ifc", "").strip()
    reference = re.sub(r"\bRefModule\b", "TopModule", row.text("ref"))
    stub = (
        f"{_comment(prompt.removesuffix(head))}{head}\n" if head and prompt.endswith(head) else ""
    )
    return _task(row, stub or prompt, stub, reference, "RefModule")


def _comment(text: str) -> str:
    return "".join(f"// {line}".rstrip() + "\n" for line in text.strip().splitlines())


def _task(row: Row, prompt: str, stub: str, reference: str, model: str) -> Task:
    design = "TopModule" if model == "RefModule" else "top_module"
    check = TestBench(driver(row, row.text("test"), design, model), design)
    return design_task(row.text("task_id"), prompt, check, stub, reference)


def design_task(name: str, prompt: str, bench: TestBench, stub: str, reference: str | None) -> Task:
    """A task whose program is the design that a bench tests."""
    design, language = bench.design, "verilog"
    return Task(name, prompt, (bench,), design, language, stub=stub, reference=reference)


def driver(row: Row, bench: str, design: str, model: str) -> str:
    """The bench with one instance, of the design in the place of the reference, that prints each
    sample where it was compared. Raises DataError for a bench of another form.
    """
    instance = re.search(rf"\b{model}\s+good1\s*\(([^;]*)\);", bench)
    sampled = bench.count("stats1.clocks++;")
    if instance is None or sampled != 1:
        raise row.wrong("'test' is no bench of VerilogEval: it has no instance `good1`")
    ports = re.findall(r"\.(\w+)\s*(?:\(\s*(\w+)\s*\))?", instance[1])
    wires = [wire or port for port, wire in ports]
    inputs = [wire for wire in wires if not wire.endswith("_ref")]
    outputs = [wire for wire in wires if wire.endswith("_ref")]
    bits = " | ".join(" ".join(["%b"] * len(some)) for some in (inputs, outputs))
    prints = f'$display("@SAMPLE {bits}", {", ".join(inputs + outputs)});'
    for pattern, text in (
        (rf"\bmodule\s+{model}\b.*?\bendmodule\b", ""),
        (rf"\b{design}\s+top_module1\s*\([^;]*\);", ""),
        (rf"\b{model}\s+good1\b", f"{design} good1"),
        (r"\bassign\s+tb_match\s*=[^;]*;", "assign tb_match = 1;"),
        (r"stats1\.clocks\+\+;", f"stats1.clocks++; if (stats1.clocks <= {MOST}) {prints}"),
    ):
        bench = re.sub(pattern, text, bench, flags=re.DOTALL)
    return DUMPS.sub(";", bench)
