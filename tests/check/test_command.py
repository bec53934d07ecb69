"""`assay check` as users run it: a file with each kind of flaw, the sound tasks, and refusals."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assay.check.findings import Flaw
from assay.check.report import TaskReport, check
from assay.check.trial import ProgramRunner, run_trials
from assay.cli import main
from assay.errors import DataError
from assay.sandbox.limits import Limits
from assay.tasks import load
from assay.tasks.jsonl import task_of
from assay.tasks.rows import Row
from assay.types import Call, Exchange, Task
from tests.check.flawed import FOUND, KEPT, ROWS, row, write
from tests.end_to_end.recipes import assay, command

RUNNER = ProgramRunner(Limits(cpu_seconds=1.2), slots=2)


def flaws(checked: list[TaskReport]) -> dict[str, set[str]]:
    return {
        one.id: {str(finding.flaw) for finding in one.findings} for one in checked if one.findings
    }


def test_each_flaw_is_found_only_where_it_is_and_sound_tasks_load_back_equal(
    tmp_path: Path,
) -> None:
    file, sound, report = (
        write(tmp_path / "tasks.jsonl"),
        tmp_path / "sound.jsonl",
        tmp_path / "report.json",
    )
    done = assay(
        "check",
        file,
        "--output",
        sound,
        "--report",
        report,
        "--cpu-seconds",
        "1.2",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    written = json.loads(report.read_text())
    found = {flawed["id"]: set(flawed["findings"]) for flawed in written["flawed"]}
    untested = f"{file}, line 2"
    assert found == {
        untested if name == "untested" else name: flaws for name, flaws in FOUND.items()
    }
    assert [written["checked"], written["kept"], written["findings"]["echo_passes"]] == [15, 5, 2]
    details = {flawed["id"]: " ".join(flawed["findings"].values()) for flawed in written["flawed"]}
    assert details["wrong reference"].endswith("1 of 2 checks pass")
    assert details["idle"] == "1 of 3 checks pass for a program that only raises"
    assert details["asks nothing"] == "this test asks nothing of the program: assert 1 + 1 == 2"
    assert details["any int"] == "passing: an int equal to everything"
    assert "No module named 'nothing_of_this_name'" in details["bad setup"]
    assert load(str(sound)) == [task_of(Row(fields, "")) for fields in ROWS if fields["id"] in KEPT]
    assert "kept 5 of 15 tasks" in done.stdout
    assert "constant_passes      1     0  one answer" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "report.json",
        "sound.jsonl",
        "tasks.jsonl",
    ]


@pytest.mark.long
def test_strict_drops_tasks_for_every_finding_and_exits_with_1_except_for_kept_findings(
    tmp_path: Path,
) -> None:
    file = write(
        tmp_path / "tasks.jsonl",
        [row("sound"), row("one answer", ["assert f(1) == 2"]), row("x", reference=None)],
    )
    words = ("check", "tasks.jsonl", "--output", "sound.jsonl", "--json")
    done = assay(*words, "--strict", folder=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["kept"]) == (1, 1)
    assert [task.id for task in load(str(tmp_path / "sound.jsonl"))] == ["sound"]
    kept = [f"--keep={name}" for name in ("constant_passes", "no_reference", "duplicate")]
    done = assay(*words, "--strict", *kept, folder=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["kept"]) == (0, 3)
    mildly = [check(str(file), keep=keep, runner=RUNNER) for keep in ((), ("constant_passes",))]
    assert [sum(one.sound for one in checked) for checked in mildly] == [2, 3]


COUNTER = """class Counter:
    def __init__(self):
        self.count = 0
    def add(self, n):
        self.count += n
        return self
"""


def test_rows_are_written_with_what_their_references_need(tmp_path: Path) -> None:
    counts = ["c = Counter()\nc.add(2)\nassert c.count == 2", "assert Counter().add(3).count == 3"]
    written, again = tmp_path / "written.jsonl", tmp_path / "again.jsonl"
    write(tmp_path / "tasks.jsonl", [
        row("data"),
        row("in place", ["x = [1]\nf(x)\nassert x == [1, 2]", "x = []\nf(x)\nassert x == [2]"],
            "def f(x):\n    x.append(2)\n"),
        row("objects", counts, COUNTER, entry_point="Counter"),
        row("no reference", counts, None, entry_point="Counter", setup="unproved = True\n"),
    ])  # fmt: skip
    needs = {"data": "", "in place": "", "objects": "objects", "no reference": ""}
    for file, output in (("tasks.jsonl", written), (written.name, again)):
        done = assay("check", file, "--output", output, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert {task.id: task.needs for task in load(str(output))} == needs
    assert again.read_bytes() == written.read_bytes()


def test_limit_checks_only_the_first_rows(tmp_path: Path) -> None:
    file = write(tmp_path / "tasks.jsonl", [row("sound"), row("untested", []), row("x")])
    assert [one.id for one in check(str(file), limit=1, runner=RUNNER)] == ["sound"]


def test_a_task_in_another_language_gets_no_python_attacks() -> None:
    from assay.check.attacks import attacks_on, lazy_programs

    task = replace(load("drills:test", limit=1)[0], language="cpp")
    assert attacks_on(task) == {}
    assert lazy_programs(task)["empty"] == "int main() {}"


@pytest.mark.long
@pytest.mark.data("humaneval")
def test_drills_and_humaneval_resist_every_attack() -> None:
    assert flaws(check("humaneval", limit=40, runner=RUNNER)) == {
        "HumanEval/34": {"constant_passes"}
    }
    assert flaws(check("drills:test", limit=20, runner=RUNNER)) == {}


@pytest.mark.long
def test_an_interrupted_check_writes_nothing(tmp_path: Path) -> None:
    words = command("check", "drills:train", "--output", "sound.jsonl", "--report", "report.json")
    # background jobs of a shell ignore SIGINT
    hearing = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    running = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hearing
    )
    children, deadline = (
        Path(f"/proc/{running.pid}/task/{running.pid}/children"),
        time.monotonic() + 60,
    )
    while not children.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode not in (0, 2, 3), said
    assert b"Traceback" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gone.jsonl"], "gone.jsonl does not exist"),
        (["humanevall"], "did you mean 'humaneval'?"),
        (["empty.jsonl"], "empty.jsonl holds no tasks"),
        (["hollow.jsonl"], "hollow.jsonl, line 1: has no tests"),
        (["torn.jsonl"], "torn.jsonl, line 1: no valid JSON"),
        (["tasks.jsonl", "--keep", "constant"], "unknown finding 'constant' to keep; did you mean"),
        (["tasks.jsonl", "--report", "."], ". cannot be written; choose another path"),
        (
            ["tasks.jsonl", "--output", "tasks.jsonl"],
            "tasks.jsonl is read by this command",
        ),
        (
            ["jsonl:tasks.jsonl", "--report", "./tasks.jsonl"],
            "tasks.jsonl is read by this command",
        ),
        (
            ["humaneval:tasks.jsonl", "--output", "tasks.jsonl"],
            "tasks.jsonl is read by this command",
        ),
        (["tasks.jsonl", "--output", "tasks.jsonl/a.jsonl"], "cannot be written"),
        (
            ["tasks.jsonl", "--output", "a.txt"],
            "a.txt must end in .jsonl",
        ),
        (["tasks.jsonl", "--output", "a.jsonl", "--report", "a.jsonl"], "give two paths"),
    ],
)
def test_bad_input_gets_one_clear_line_exit_code_2_and_writes_nothing(
    tmp_path: Path,
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path / "tasks.jsonl", [row("sound")])
    write(tmp_path / "hollow.jsonl", [row("untested", [])])
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "torn.jsonl").write_text("{\n")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["assay", "check", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    *progress, error = said.splitlines()
    assert (ended.value.code, error.startswith("assay: ")) == (2, True), said
    assert all(line.endswith(" s") for line in progress), said
    assert message in error
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.long
def test_a_task_that_the_judge_refuses_does_not_stop_the_others() -> None:
    sound = task_of(Row(row("sound"), ""))
    refused, fine = run_trials([replace(sound, id="refused", checks=()), sound], RUNNER)
    assert [(finding.flaw, finding.detail) for finding in refused.findings] == [
        (Flaw.UNJUDGED, "task 'refused' has no checks: no program can be judged")
    ]
    assert fine.findings == []


@pytest.mark.long
def test_a_checker_that_hangs_on_what_the_reference_prints_is_a_finding() -> None:
    checker = "def check(*texts):\n    while True: pass"
    task = Task(
        "hang", "Print 2.", (Exchange("1", "2"),), "", checker=checker, reference="print(2)"
    )
    runner = ProgramRunner(Limits(cpu_seconds=0.1, wall_seconds=1), slots=2)
    (trial,) = run_trials([task], runner)
    assert {finding.flaw for finding in trial.findings} & {Flaw.UNJUDGED, Flaw.REFERENCE_FAILS}


HANGS = "def check({}):\n    while {}:\n        pass\n    return True\n"


@pytest.mark.long
@pytest.mark.parametrize("when", ["True", "value == expected", "False"])
@pytest.mark.parametrize("calls", [False, True])
def test_a_checker_that_hangs_is_named_though_the_row_has_no_reference(
    when: str, calls: bool
) -> None:
    checker = HANGS.format("arguments, value, expected", when)
    checks = (Call("[1]", "2"), Call("[2]", "4")) if calls else (Exchange("1", "2"),)
    task = Task("hang", "Double it.", checks, "f" * calls, checker=checker)
    runner = ProgramRunner(Limits(cpu_seconds=0.1, wall_seconds=0.5), slots=2)
    (trial,) = run_trials([task], runner)
    stuck = [finding.detail for finding in trial.findings if finding.flaw is Flaw.UNJUDGED]
    assert len(stuck) == (when != "False")
    assert all(line.startswith("its checker gives no answer: ") for line in stuck)


@pytest.mark.long
def test_check_works_inside_a_running_event_loop(tmp_path: Path) -> None:
    file = write(tmp_path / "tasks.jsonl", [row("sound"), row("bad", reference="def f(x): pass")])

    async def notebook_cell() -> list[TaskReport]:
        return check(str(file), runner=RUNNER)

    assert flaws(asyncio.run(notebook_cell())) == {"bad": {"reference_fails", "duplicate"}}


PLUS = "def plus(a, b):\n    return a + b\n"


def adds(name: str, reference: str, **others: Any) -> dict[str, Any]:
    tests = ["assert add(1, 2) == 3", f"assert add(-1, {len(name)}) == {len(name) - 1}"]
    return {
        "id": name,
        "prompt": f"Write {name}.",
        "tests": tests,
        "reference": reference,
        **others,
    }


def test_a_reference_of_another_name_is_told_beside_the_name_that_the_tests_call(
    tmp_path: Path,
) -> None:
    rows = [
        adds("right", "def add(a, b):\n    return a + b\n"),
        adds("row", PLUS),
        adds("entry point", PLUS, entry_point="add"),
        adds("an alias", f"{PLUS}add = plus\n", entry_point="add"),
        adds("any names", f"{PLUS}exec('def add(a, b): return 0')\n", entry_point="add"),
    ]
    file = write(tmp_path / "tasks.jsonl", rows)
    checked = {report.id: report for report in check(str(file), runner=RUNNER)}
    details = {name: one.findings[0].detail for name, one in checked.items() if one.findings}
    assert details.pop("any names").startswith("wrong: ")
    assert details.pop("entry point").startswith(
        "the entry point that the tests call is 'add', but the reference defines 'plus'; rename one"
        " of them; no_code: "
    )
    assert details == {
        f"{file}, line 2": "the tests call 'add', but 'reference' defines 'plus'; rename one of"
        " them",
    }  # fmt: skip
    assert [name for name, report in checked.items() if report.sound] == ["right", "an alias"]


@pytest.mark.parametrize(
    ("setup", "test", "told"),
    [
        ("from math import isclose", "assert isclose(add(1, 2), 3)", "the tests call 'add'"),
        ("def twice(a, b):\n    return 2 * plus(a, b)\n", "assert twice(1, 2) == 6", "is missing"),
        ("", "from operator import *\nassert add(1, 2) == 3", "is missing"),
    ],
    ids=["an import", "a helper that calls the reference", "any names"],
)
def test_no_other_name_is_told_where_the_tests_may_have_it(
    tmp_path: Path, setup: str, test: str, told: str
) -> None:
    task = adds("row", PLUS, setup=setup) | {"tests": [test]}
    with pytest.raises(DataError, match=told):
        check(str(write(tmp_path / "tasks.jsonl", [task])), runner=RUNNER)


def test_a_check_shows_a_reason_for_each_finding_that_drops_a_task(tmp_path: Path) -> None:
    write(
        tmp_path / "tasks.jsonl",
        [row("sound"), row("bad", reference="def f(x): return 3\n"), row("worse")],
    )
    done = assay("check", "tasks.jsonl", folder=tmp_path)
    reason = r"^reference_fails: bad: wrong: .*assert f.*; 0 of 2 checks pass$"
    assert re.search(reason, done.stdout, re.MULTILINE)
    assert "\nduplicate: " not in done.stdout, "a warning drops nothing"
    assert "; --output FILE.jsonl writes the tasks that are kept; --report" in done.stdout


def test_training_refuses_a_row_with_the_command_that_keeps_the_others(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        'name = "run"\npolicy.model = "tiny"\ntasks.train = "tasks.jsonl"\nsteps = 1\n'
        'algorithm.name = "sft"\n'
    )
    for rows in ([adds("a", PLUS), row("sound")], [row("sound"), adds("a", PLUS)]):
        write(tmp_path / "tasks.jsonl", rows)
        done = assay("train", "run.toml", "--dry-run", folder=tmp_path)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].endswith(
            "the tests call 'add', but 'reference' defines 'plus'; rename one of them; `assay check"
            " tasks.jsonl --output sound.jsonl` writes the tasks that are right"
        )
    write(tmp_path / "tasks.jsonl", [adds("a", PLUS)])
    alone = assay("train", "run.toml", "--dry-run", folder=tmp_path)
    assert "assay check" not in alone.stderr, "no task would be left"
