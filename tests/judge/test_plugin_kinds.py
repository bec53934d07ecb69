"""Kinds of tests from files outside of assay: those of docs/own.md, and wrong ones."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

from assay.errors import DataError, SettingsError
from assay.judge import Job
from assay.judge.kinds.kind import KINDS
from assay.judge.prepared_task import PreparedTask
from assay.judges.terms import common_terms
from assay.registry import load_plugins
from assay.sandbox.limits import Limits
from assay.tasks import task_from_dict
from assay.types import Cause, Task, Verdict
from tests.judge.opened import judge_all

PAGE = (Path(__file__).parents[2] / "docs/own.md").read_text()
HEAD = """
from dataclasses import dataclass
from assay.judge.kinds.kind import EachCheck, InWorker, Kind
from assay.judge.worker_messages import Outcome
"""
COUNTS = """
@dataclass(frozen=True)
class Counts:
    most: int
    hidden: bool = True
"""
IN_WORKER = """
def run(most, number, context):
    return [lambda: Outcome("held" if context.connection.call("f", (), {}) <= most else "wrong")]

class CountsTests(InWorker[Counts], judges=Counts):
    def wire(self, check): return check.most
"""
Load = Callable[..., None]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Loads plug-ins from texts by name, which are gone after the test."""
    kinds = dict(KINDS)

    def load_texts(**sources: str) -> None:
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(source)
        load_plugins([f"{name}.py" for name in sources], tmp_path)

    yield load_texts
    KINDS.clear()
    KINDS.update(kinds)


def shown(name: str) -> str:
    """A file that the page shows."""
    (source,) = re.findall(rf"^```python {name}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(source)


def task(entry_point: str, *checks: dict[str, object]) -> Task:
    row = {"format": "assay", "id": "a", "prompt": "", "entry_point": entry_point}
    return task_from_dict({**row, "checks": list(checks)})


def test_a_plug_in_kind_runs_a_command_of_its_own(load: Load) -> None:
    load(command_line=shown("command_line.py"))
    echo = task("", {"words": ["a", "b"], "prints": "a b"}, {"words": ["c"], "prints": "c"})
    programs = ["import sys; print(*sys.argv[1:])", "print('a b')", "1 / 0"]
    first, second, third = judge_all([Job(echo, program) for program in programs])
    assert (first.verdict, first.passed, first.total) == (Verdict.PASS, 2, 2)
    assert (second.verdict, second.passed, second.total) == (Verdict.WRONG, 1, 2)
    assert third.verdict is Verdict.ERROR
    assert not first.forgeable


def test_a_plug_in_kind_calls_the_program_in_the_worker(load: Load) -> None:
    load(sorting=shown("sorting.py"))
    sort = task("f", {"lists": ["b a c", "b b a"]})
    programs = ["sorted(words)", "sorted(set(words))", "words", "1 / 0"]
    jobs = [Job(sort, f"def f(words): return {program}") for program in programs]
    executions = judge_all(jobs, stop_early=False)
    verdicts = [(one.verdict, one.passed, one.total) for one in executions]
    assert verdicts == [
        (Verdict.PASS, 2, 2), (Verdict.WRONG, 1, 2), (Verdict.WRONG, 0, 2), (Verdict.ERROR, 0, 2),
    ]  # fmt: skip
    assert not executions[0].forgeable


def test_an_answer_that_equals_everything_does_not_pass_a_plug_in(load: Load) -> None:
    load(sorting=shown("sorting.py"))
    program = "class A(list):\n  __eq__ = lambda *_: True\ndef f(words): return A()"
    (execution,) = judge_all([Job(task("f", {"lists": ["b a"]}), program)])
    assert execution.verdict is Verdict.WRONG


def test_the_text_of_a_plug_in_is_part_of_the_keys_of_its_verdicts(load: Load) -> None:
    keys, terms = set(), set()
    for more in ("", "\nLIMIT = 1\n"):
        load(counts=HEAD + COUNTS + IN_WORKER + more)
        keys.add(PreparedTask(task("f", {"most": 1}), Limits(), True).digest)
        terms.add(str(common_terms(Limits(), stop_early=True)))
        unload(load)
    assert len(keys) == len(terms) == 2


def unload(load: Load) -> None:
    """Forget the plug-ins, as a new process has."""
    for name in [name for name in sys.modules if name.endswith(".counts")]:
        del sys.modules[name]
    for kind in [kind for kind in KINDS if kind.__name__ == "Counts"]:
        del KINDS[kind]


def test_a_plug_in_that_fails_in_the_worker_is_no_failure_of_program_or_machine(
    load: Load,
) -> None:
    load(counts=f"{HEAD}from assay.languages import Language{COUNTS}{IN_WORKER}")
    (execution,) = judge_all([Job(task("f", {"most": 1}), "def f(): return 1")])
    assert (execution.verdict, execution.cause) == (Verdict.UNJUDGED, Cause.TASK)
    assert "assay.languages" in execution.detail


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("class A: pass\nclass K(Kind[A], judges=A): pass", "A are no dataclass"),
        ("@dataclass\nclass A:\n  b: int\nclass K(Kind[A], judges=A): pass", "hidden"),
        ("from assay.types import Call\nclass K(Kind[Call], judges=Call): pass", "two kinds"),
        ("@dataclass\nclass A:\n  stdin: str\n  hidden: bool = True\n"
         "class K(Kind[A], judges=A): pass", "'stdin', as that of Exchange"),
    ],
)  # fmt: skip
def test_a_kind_that_cannot_be_told_from_others_is_refused(
    source: str, words: str, load: Load
) -> None:
    with pytest.raises(SettingsError, match=words):
        load(wrong=HEAD + dedent(source))


@pytest.mark.parametrize("later", ["", "from __future__ import annotations\n"])
def test_rows_have_the_fields_that_a_plug_in_declares(later: str, load: Load) -> None:
    load(counts=later + HEAD + COUNTS + IN_WORKER)
    assert task("f", {"most": 3}).checks[0].most == 3  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="'most' is 'three'; it must be int"):
        task("f", {"most": "three"})


def test_a_field_of_a_type_that_no_row_can_have_is_refused(load: Load) -> None:
    load(counts=HEAD + COUNTS.replace("int", "complex") + IN_WORKER)
    with pytest.raises(DataError, match="complex; use one of"):
        task("f", {"most": 3})


def test_checks_of_a_plug_in_and_ours_share_a_worker_and_other_mixtures_are_refused(
    load: Load,
) -> None:
    load(counts=HEAD + COUNTS + IN_WORKER)
    both = task("f", {"most": 1}, {"source": "assert f() == 1"})
    right, wrong = judge_all([Job(both, f"def f(): return {number}") for number in (1, 0)])
    assert (right.verdict, right.passed, right.total) == (Verdict.PASS, 2, 2)
    assert (wrong.verdict, wrong.passed) == (Verdict.WRONG, 1)
    with pytest.raises(DataError, match="mixes"):
        task("f", {"most": 1}, {"stdin": "", "stdout": "1"})


def test_a_kind_that_stands_in_no_file_is_refused_where_a_worker_needs_it(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", notebook)
    load()
    exec(HEAD + COUNTS + IN_WORKER, vars(notebook))
    (execution,) = judge_all([Job(task("f", {"most": 1}), "def f(): return 1")])
    assert (execution.verdict, execution.cause) == (Verdict.UNJUDGED, Cause.TASK)
    assert "file" in execution.detail


@pytest.mark.parametrize(
    ("program", "verdict"),
    [("return 1", Verdict.PASS), ("1 / 0", Verdict.ERROR), ("return 'a'", Verdict.WRONG),
     ("import os; os._exit(0)", Verdict.ERROR), ("raise SystemExit", Verdict.ERROR)],
)  # fmt: skip
def test_what_a_plug_in_does_not_catch_is_the_programs_error_or_a_failed_test(
    program: str, verdict: Verdict, load: Load
) -> None:
    load(counts=HEAD + COUNTS + IN_WORKER)
    (execution,) = judge_all([Job(task("f", {"most": 1}), f"def f(): {program}")])
    assert execution.verdict is verdict, execution


LOSES = """
from assay.errors import SandboxError

class CountsTests(EachCheck[Counts], judges=Counts):
    tries = 0
    async def judge_check(self, workbench, check, task, program):
        type(self).tries += 1
        if self.tries <= check.most:
            raise SandboxError("the machine")
        return (await workbench.run(program)).execution
"""


@pytest.mark.parametrize(("losses", "verdict"), [(1, Verdict.PASS), (2, Verdict.INFRA)])
def test_what_the_machine_fails_is_judged_once_more_and_is_never_wrong(
    losses: int, verdict: Verdict, load: Load
) -> None:
    load(counts=HEAD + COUNTS + LOSES)
    (execution,) = judge_all([Job(task("", {"most": losses}), "print(1)")])
    assert execution.verdict is verdict
