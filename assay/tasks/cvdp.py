"""CVDP: designs in SystemVerilog, tested by harnesses of cocotb (arXiv:2506.14074)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import dropwhile

from assay.checks import Harness
from assay.judge.kinds.harness import joined
from assay.tasks import task_set
from assay.tasks.rows import LeftOutError, PublicSet, Row, usable_tasks
from assay.types import Message, Task

FILE = "cvdp/cvdp_v1.1.0_example_{}_code_generation_no_commercial_with_solutions.jsonl"
HUB, CONFIG = "nvidia/cvdp-benchmark-dataset", "cvdp_{}_code_generation_no_commercial"
CVDP = PublicSet("cvdp", FILE, HUB, CONFIG, ("nonagentic", "agentic"))
SETTING = re.compile(r"^\s*(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)
COMMAND = re.compile(r"^\s*command\s*:.*$", re.MULTILINE)
RUNS = re.compile(r"/(src/[\w./-]+\.py)")
COMMERCIAL = re.compile(r"__VERIF_EDA_IMAGE__|\bxrun\b|\bimc\b")
STARTS_TOOLS = re.compile(r"\bsubprocess\b|\bos\s*\.\s*(?:system|popen|exec|spawn)")
HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")
ASK = "Provide me one answer for this request: {}\n\n"
AS_TEXT = (
    "Please provide your response as plain text without any JSON formatting. Your response will be"
    " saved directly to: {}."
)
AS_BLOCKS = (
    "Answer with one code block for each of these files: {}. The first line of a block is"
    " `// file: NAME`."
)


@task_set
def cvdp(split: str = "nonagentic") -> Iterator[Task]:
    """CVDP: hardware designs tested by cocotb; nonagentic or agentic rows (arXiv:2506.14074)."""
    return usable_tasks(CVDP.rows(split), task_of)


def task_of(row: Row) -> Task:
    """A row with `id`, `harness`, and `input` and `output` or `prompt`, `context` and `patch`; or
    one of NeMo Gym's, with `responses_create_params` and `verifier_metadata`.

    Raises DataError where one is missing or malformed, LeftOutError where Icarus Verilog alone
    cannot judge it.
    """
    if "verifier_metadata" in row.fields:
        metadata = row.table("verifier_metadata")
        targets = metadata.texts("target_files")
        check = harness(row, metadata, "harness_files", targets, texts(metadata, "context_files"))
        messages = row.table("responses_create_params").messages("input")
        return Task(
            metadata.text("task_id"), "", (check,), top(check), "verilog", messages=messages
        )
    flat = "input" not in row.fields
    context = texts(row if flat else row.table("input"), "context")
    if flat:
        patches = texts(row, "patch")
        solved = {name: patched(context.get(name, ""), patch) for name, patch in patches.items()}
    else:
        solved = texts(row.table("output"), "context")
    check = harness(row, row, "harness", tuple(solved), context)
    request = (row if flat else row.table("input")).text("prompt")
    context_text = "".join(
        f"Consider the following content for the file {name}:\n```\n{text}\n```\n"
        for name, text in context.items()
    )
    answer = (AS_TEXT if len(solved) == 1 else AS_BLOCKS).format(", ".join(solved))
    message = Message("user", context_text + ASK.format(request) + answer)
    return Task(
        row.text("id"), "", (check,), top(check), "verilog", messages=(message,),
        reference=joined(solved) if solved and all(solved.values()) else None,
    )  # fmt: skip


def texts(row: Row, name: str) -> dict[str, str]:
    """A field that is an object of texts; those that are null are left out."""
    fields = row.table(name)
    return {key: fields.text(key) for key, value in fields.fields.items() if value is not None}


def top(check: Harness) -> str:
    """The module that the tests drive."""
    return check.environment.get("TOPLEVEL", "")


def harness(
    row: Row, source: Row, name: str, targets: tuple[str, ...], context: Mapping[str, str]
) -> Harness:
    """The check of a row. Raises DataError, LeftOutError."""
    table = source.table(name)
    files = texts(table, "files") if "files" in table.fields else texts(source, name)
    compose, settings = files.get("docker-compose.yml", ""), files.get("src/.env", "")
    sources = {file: text for file, text in files.items() if file.startswith("src/")}
    python = "\n".join(text for file, text in sources.items() if file.endswith(".py"))
    environment = dict(SETTING.findall(settings))
    tests = tuple(dict.fromkeys(RUNS.findall("\n".join(COMMAND.findall(compose)))))
    if not (files and targets):
        raise LeftOutError("without a harness")
    simulator = environment.get("SIM", "icarus")
    if simulator != "icarus" or COMMERCIAL.search("\n".join(files.values())):
        raise LeftOutError("that need another simulator than Icarus Verilog")
    if STARTS_TOOLS.search(python):
        raise LeftOutError("whose harness starts tools itself")
    if not tests or not all(test in sources for test in tests):
        raise row.wrong("its docker-compose.yml names no test of pytest that is there")
    others = {f"code/{file}": text for file, text in context.items() if file not in targets}
    return Harness(sources | others, targets, tests, environment)


def patched(text: str, patch: str) -> str:
    """A text after a unified diff of it."""
    old, new, at = text.split("\n"), list[str](), 0
    for line in dropwhile(lambda line: not HUNK.match(line), patch.split("\n")):
        if start := HUNK.match(line):
            first = max(int(start[1]) - (start[2] != "0"), 0)
            new += old[at:first]
            at = first
        elif line[:1] in ("+", " "):
            new.append(line[1:])
        at += not start and line[:1] in ("-", " ")
    return "\n".join(new + old[at:])
