"""What a demonstration says and runs: where it looks, and what it takes from the statement."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.demonstrate.changes import RightChange, places_of
from assay.demonstrate.script import (
    ScriptPlan,
    ScriptStep,
    Situation,
    StepResult,
    UnfitScriptError,
    draw_plan,
    named_place,
    script,
    windows,
)

FILLER = "".join(f"def other_{n}():\n    return {n}\n\n\n" for n in range(40))
OLD = f"{FILLER}def halve(x):\n    return x / 3\n"
NEW = OLD.replace("x / 3", "x / 2")
CHANGE = RightChange({"pkg/core.py": OLD}, {"pkg/core.py": NEW})
STATEMENT = "`halve` is wrong.\n\n```python\nprint(halve(1))\n```\n"
PLAN = ScriptPlan(
    look=0, search=0, reads_tests=True, reproduces=True, margin=10, numbers=False, way="python",
    wording=0,
)  # fmt: skip


def situation(statement: str = STATEMENT, **fields: object) -> Situation:
    known: dict[str, object] = {
        "statement": statement, "change": CHANGE, "files": ("pkg/core.py", "tests/test_core.py"),
        "source_folders": ("src", "."), "has_git": True,
    }  # fmt: skip
    return Situation(**(known | fields))  # type: ignore[arg-type]


def steps(plan: ScriptPlan = PLAN, **fields: object) -> Iterator[ScriptStep]:
    """The steps, where each command shows its number."""
    played = script(situation(**fields), plan)  # type: ignore[arg-type]
    step, number = next(played), 0
    try:
        while True:
            yield step
            number += 1
            step = played.send(StepResult(str(number), succeeded=True))
    except StopIteration:
        return


def test_the_steps_lead_from_the_statement_to_the_submission() -> None:
    first, tests, program, search, read, write, again, diff, submit = (
        step.command for step in steps()
    )
    assert (first, tests, diff) == ("ls", "ls tests", "git diff")
    assert program == again == "PYTHONPATH=src python3 -B - <<'EOF'\nprint(halve(1))\nEOF"
    assert "halve" in search
    assert read == "sed -n '150,172p' pkg/core.py"
    assert "x / 2" in write
    assert submit == "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def test_a_file_to_which_no_search_leads_is_listed_before_it_is_read() -> None:
    listing = "grep -nE '^ *(class|def|async def) ' pkg/core.py"
    for statement in ("`other_3` is wrong.", "It fails."):
        commands = [step.command for step in steps(statement=statement)]
        assert commands.index(listing) + 1 == commands.index("sed -n '150,172p' pkg/core.py")
    assert listing not in [step.command for step in steps()]


def test_nothing_of_the_right_change_is_said_or_run_before_it_is_written() -> None:
    for number in range(60):
        for step in steps(draw_plan(number, "task", 0)):
            if "x / 2" in step.command:
                break
            assert "x / 3" not in step.command + step.text
        else:
            raise AssertionError("the change is never written")


def test_lines_that_a_command_counts_were_shown_with_their_numbers() -> None:
    for number in range(60):
        commands = [step.command for step in steps(draw_plan(number, "task", 0))]
        if any(command.startswith(("sed -i", "git apply")) for command in commands):
            assert any(command.startswith("cat -n pkg/core.py") for command in commands)


def test_the_name_that_is_searched_for_stands_in_the_statement_as_code() -> None:
    assert named_place(STATEMENT, CHANGE) == "halve"
    assert named_place("halve is wrong.", CHANGE) == ""
    assert named_place("`other_5()` fails, as `other_3` does.", CHANGE) == "other_5"
    assert named_place("`other_3()` fails, as `other_5` does.", CHANGE) == "other_5", "it is nearer"
    assert named_place("`nothing` and `print`", CHANGE) == ""


def test_without_a_name_no_search_is_run() -> None:
    assert not any("grep -rn" in step.command for step in steps(statement="It fails."))


def test_a_script_compares_no_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(*_: object, **__: object) -> None:
        raise AssertionError("it compares")

    for module in ("difflib", "assay.demonstrate.changes"):
        monkeypatch.setattr(f"{module}.SequenceMatcher", compare)
    for number in range(30):
        assert [*steps(draw_plan(number, "task", 0))]


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@pytest.mark.parametrize("text", [OLD, "def halve(x):\n    return x / 3\n"])
def test_a_path_is_never_an_option(tmp_path: Path, text: str) -> None:
    change = RightChange({"-a.py": text}, {"-a.py": text.replace("x / 3", "x / 2")})
    (tmp_path / "-a.py").write_text(text)
    commands = {
        step.command
        for number in range(40) for statement in (STATEMENT, "It fails.")
        for step in steps(
            draw_plan(number, "task", 0), statement=statement, change=change, files=("-a.py",),
            has_git=False,
        )
        if "-a.py" in step.command
    }  # fmt: skip
    assert {command.split()[0] for command in commands} >= {"cat", "git", "python3", "sed"}
    for command in sorted(commands):
        (tmp_path / "-a.py").write_text(text)
        words = ["bash", "-o", "pipefail", "-c", command]
        assert subprocess.run(words, cwd=tmp_path, capture_output=True).returncode == 0, command


def test_a_program_that_shows_no_difference_does_not_fit() -> None:
    played = script(situation(), PLAN)
    seen = None
    try:
        while True:
            played.send(seen) if seen else next(played)
            seen = StepResult("always the same", succeeded=True)
    except UnfitScriptError:
        return


def test_without_git_no_command_asks_it() -> None:
    for number in range(30):
        for step in steps(draw_plan(number, "task", 0), has_git=False):
            assert not step.command.startswith("git") or step.command.startswith("git apply")


def test_seeds_decide_the_plan_and_plans_differ() -> None:
    plans = [draw_plan(0, "task", number) for number in range(50)]
    assert plans == [draw_plan(0, "task", number) for number in range(50)]
    assert {plan.way for plan in plans} == {"diff", "python", "sed"}
    assert {plan.reads_tests for plan in plans} == {True, False}
    assert len({*plans, *(draw_plan(1, "task", number) for number in range(50))}) == 100


def test_near_places_are_read_together_and_far_ones_apart() -> None:
    lines = [f"{n}\n" for n in range(200)]
    others = [*lines]
    others[20], others[30], others[150] = "a\n", "b\n", "c\n"
    places = places_of("f", "".join(lines), "".join(others))
    assert [(path, lines.start, lines.stop - 1) for path, lines in windows(places, 10)] == [
        ("f", 10, 41), ("f", 140, 161),
    ]  # fmt: skip
