"""Tasks of calls and exchanges: sound tasks have no finding, and each flaw is found."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from string import ascii_letters

import pytest

from assay.check.report import check
from assay.sandbox.program import HASH_SEEDS
from assay.tasks.exact import row_of
from assay.types import Call, Exchange, Task
from tests.check.test_command import RUNNER, flaws

DOUBLE = "def f(x):\n    return 2 * x\n"
DOUBLED = "print(2 * int(input()))"
CALLS = (Call("[1]", "2"), Call('["a"]', '"aa"'))
TALKS = (Exchange("1\n", "2\n"), Exchange("3\n", "6\n"))


def called(
    name: str, calls: tuple[Call, ...] = CALLS, reference: str | None = DOUBLE, prompt: str = ""
) -> Task:
    return Task(name, prompt or name, calls, "f", setup=f"task = {name!r}", reference=reference)


def talked(
    name: str, talks: tuple[Exchange, ...] = TALKS, reference: str = DOUBLED, prompt: str = ""
) -> Task:
    return Task(name, prompt or name, talks, "", setup=f"task = {name!r}", reference=reference)


def found(folder: Path, tasks: list[Task]) -> dict[str, set[str]]:
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps(row_of(task)) + "\n" for task in tasks))
    return flaws(check(str(file), runner=RUNNER))


def test_flaws_of_calls_are_found(tmp_path: Path) -> None:
    tasks = [
        called("sound"),
        called("sound by its reference", (Call("[1]"), Call("[2]"))),
        called("wrong reference", reference="def f(x):\n    return 3 * x\n"),
        called("constant", (Call("[1]", "2"), Call("[1.0]", "2"))),
        called("constant by its reference", (Call("[3]"), Call("[3]"))),
        called("echo", (Call("[0]", "0"), Call('[""]', '""'))),
        called(
            "nothing", (Call("[1]", "null"), Call("[2]", "null")), "def f(x):\n    return None\n"
        ),
        called("several", prompt="Return any of them."),
        called("no reference", (*CALLS, Call("[4]", "8")), None),
    ]
    everything = found(tmp_path, tasks)
    assert everything.pop("nothing") >= {"empty_passes", "constant_passes"}
    assert everything == {
        "wrong reference": {"reference_fails"},
        "constant": {"constant_passes"},
        "constant by its reference": {"constant_passes"},
        "echo": {"echo_passes"},
        "several": {"needs_checker"},
        "no reference": {"no_reference"},
    }


@pytest.mark.long
def test_flaws_of_exchanges_are_found(tmp_path: Path) -> None:
    tasks = [
        talked("sound"),
        talked("wrong reference", reference="print(3 * int(input()))"),
        talked("constant", (Exchange("1\n", "2\n"), Exchange(" 1\n", "2\n"))),
        talked("echo", (Exchange("0\n", "0\n"), Exchange("00\n", "00\n")), "print(input())"),
        talked("several", prompt="If there are multiple answers, print any of them."),
    ]
    assert found(tmp_path, tasks) == {
        "wrong reference": {"reference_fails"},
        "constant": {"constant_passes"},
        "echo": {"echo_passes"},
        "several": {"needs_checker"},
    }


@pytest.mark.long
def test_a_reference_whose_answer_depends_on_the_order_of_a_set_is_found(tmp_path: Path) -> None:
    letter = next(letter for letter in ascii_letters if len(parities(letter)) == 2)
    parity = f"hash({letter!r}) % 2"
    tasks = [
        called("call", (Call("[1]", "1"),), f"def f(x):\n    return {parity}\n"),
        called("no answer", (Call("[1]"),), f"def f(x):\n    return {parity}\n"),
        talked("exchange", (Exchange("", "1"),), f"print({parity})"),
        called("sound", reference=f"other = {parity}\n{DOUBLE}"),
    ]
    everything = found(tmp_path, tasks)
    assert {name for name, flaws in everything.items() if "set_order" in flaws} == {
        "call",
        "no answer",
        "exchange",
    }


def parities(letter: str) -> set[str]:
    """Of its hash under every seed that the check tries."""
    return {
        subprocess.run(
            [sys.executable, "-c", f"print(hash({letter!r}) % 2)"],
            env={"PYTHONHASHSEED": str(seed)}, capture_output=True, text=True, check=True,
        ).stdout
        for seed in range(HASH_SEEDS)
    }  # fmt: skip


@pytest.mark.long
def test_lazy_programs_and_attacks_reach_the_methods_that_a_task_calls(tmp_path: Path) -> None:
    methods = [
        called("constant method", (Call("[1]", "2"), Call("[1.0]", "2")), None),
        called("echo method", (Call("[0]", "0"), Call('[""]', '""')), None),
        called("sound method", (*CALLS, Call("[4]", "8")), None),
    ]
    tasks = [replace(task, entry_point="Solution().f") for task in methods]
    assert found(tmp_path, tasks) == {
        "constant method": {"constant_passes", "no_reference"},
        "echo method": {"echo_passes", "no_reference"},
        "sound method": {"no_reference"},
    }
