"""Evaluations computed from rollouts, and the report that is written, read and appended to."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from assay.commands.options import tell_forgeable
from assay.config.sections import EvaluateSettings
from assay.errors import DataError, MachineError
from assay.evaluate.counts import TaskResult
from assay.evaluate.report import (
    Evaluation,
    metrics_of,
    read_report,
    summarise,
    table,
    write_report,
)
from assay.evaluate.run_summary import HeldOut, read_held_out
from assay.evaluate.sample_file import SampleRow, rollout_of, row_of
from assay.maths.estimates import Interval
from assay.types import Check, Completion, Execution, Rollout, Score, Task, Turn, Verdict


def rollout(task: str, verdict: Verdict, *, tokens: int = 4, cut: bool = False) -> Rollout:
    asked = Task(id=task, prompt="add", checks=(Check("assert f(1) == 2"),), entry_point="f")
    ids = tuple(range(tokens))
    written = Completion(
        "x", ids, (-0.5,) * tokens, "length" if cut else "stop", versions=(0,) * tokens
    )
    turn = Turn(prompt_tokens=(1, 2), completion=written, program="x", execution=Execution(verdict))
    return Rollout(task=asked, turns=(turn,), score=Score(float(verdict is Verdict.PASS)))


def lost(task: str) -> Rollout:
    asked = Task(id=task, prompt="add", checks=(Check("assert f(1) == 2"),), entry_point="f")
    return Rollout(task=asked, turns=(), score=None, failure="the judge died")


def evaluated(name: str, rollouts: list[Rollout], spec: str = "drills:test") -> Evaluation:
    samples = max(Counter(one.task.id for one in rollouts).values(), default=1)
    settings = EvaluateSettings(tasks=spec, samples=samples)
    rows = [row_of(one, number) for number, one in enumerate(rollouts)]
    return summarise(name, settings, rows, seconds=2.5)


TWO_TASKS = [
    rollout("a", Verdict.PASS, tokens=10),
    rollout("b", Verdict.WRONG, tokens=20),
    rollout("a", Verdict.TIMEOUT, tokens=30, cut=True),
    rollout("b", Verdict.WRONG, tokens=40),
]


def test_an_evaluation_holds_the_hand_computed_numbers() -> None:
    found = evaluated("sft", TWO_TASKS)
    assert (found.tasks, found.samples, found.dropped) == (2, 2, 0)
    assert found.pass_at == {1: pytest.approx(0.25), 2: pytest.approx(0.5)}
    assert found.mean_length == pytest.approx(25)
    assert found.truncated == pytest.approx(0.25)
    assert found.verdicts == {"pass": 1, "wrong": 2, "timeout": 1}
    assert found.per_task == (TaskResult("a", 1, 2), TaskResult("b", 0, 2))
    assert found.interval.low < 0.25 < found.interval.high


def test_rewards_that_agents_report_are_averaged_over_tasks_and_shown_beside_the_pass_rate() -> (
    None
):
    rewards = [1.0, 0.25, 0.5, -0.25]
    rollouts = [replace(one, reported=r) for one, r in zip(TWO_TASKS, rewards, strict=True)]
    more = [replace(rollout("b", Verdict.PASS), reported=3.0), lost("a")]
    found = evaluated("sft", [*rollouts, *more])
    assert found.reward == pytest.approx((0.75 + 1) / 2)
    assert metrics_of([found, found])["evaluate/reward"] == found.reward
    assert metrics_of([found, found])["evaluate/reward/drills:test"] == found.reward
    assert "0.875" in printed(table([found], 200), 200)
    partly = evaluated("sft", [*rollouts, *more, rollout("c", Verdict.PASS)])
    assert partly.reward is None, "a mean of some would be of other tasks"
    without = evaluated("base", TWO_TASKS)
    assert without.reward is None
    assert "reward" not in printed(table([without], 200), 200)
    assert not [name for name in metrics_of([without]) if "reward" in name]


def test_a_row_keeps_the_reported_reward() -> None:
    reported = replace(TWO_TASKS[1], reported=0.5)
    row = row_of(reported, 0)
    assert isinstance(row, SampleRow)
    again = rollout_of(row, reported.task)
    assert again.score
    assert (again.reported, again.score.total, again.passed) == (0.5, 0.5, False)


def test_pass_at_k_of_an_axis_counts_the_samples_whose_term_is_positive() -> None:
    parts = [{"lint": 0.4}, {"lint": 0.0}, {"lint": 1.0}, {"lint": 0.2}]
    rollouts = [
        replace(one, score=Score(1.0, part)) for one, part in zip(TWO_TASKS, parts, strict=True)
    ]
    settings = EvaluateSettings(tasks="drills:test", samples=2, axes=("lint",))
    rows = [row_of(one, number, ("lint",)) for number, one in enumerate(rollouts)]
    found = summarise("sft", settings, rows, seconds=1.0)
    assert found.axes == {"lint": {1: pytest.approx(0.75), 2: pytest.approx(1.0)}}


def test_a_rollout_lost_to_the_machine_is_counted_and_changes_no_number() -> None:
    without, found = (
        evaluated("sft", TWO_TASKS),
        evaluated("sft", [lost("a"), *TWO_TASKS, lost("c")]),
    )
    assert found.dropped == 2
    assert found.samples == 3
    assert (found.pass_at, found.interval, found.mean_length) == (
        without.pass_at,
        without.interval,
        without.mean_length,
    )
    assert found.per_task == without.per_task


def test_pass_at_k_goes_as_far_as_the_task_with_the_fewest_judged_samples() -> None:
    eight = [rollout("a", Verdict.PASS) for _ in range(8)]
    assert list(evaluated("sft", eight).pass_at) == [1, 2, 4, 8]
    assert list(evaluated("sft", eight[:7]).pass_at) == [1, 2, 4]
    assert list(evaluated("sft", [*eight, rollout("b", Verdict.WRONG)]).pass_at) == [1]


def test_one_sample_per_task_has_wilsons_interval() -> None:
    verdicts = [Verdict.PASS] * 12 + [Verdict.WRONG] * 21
    found = evaluated(
        "sft", [rollout(f"t{index}", verdict) for index, verdict in enumerate(verdicts)]
    )
    assert (round(found.interval.low, 2), round(found.interval.high, 2)) == (0.22, 0.53)


@pytest.mark.parametrize("rollouts", [[], [lost("a"), lost("b")]])
def test_an_evaluation_without_judged_completions_is_an_error_and_not_zero(
    rollouts: list[Rollout],
) -> None:
    with pytest.raises(MachineError, match=r"none of \d completions was judged"):
        evaluated("sft", rollouts)


def test_a_report_reads_back_as_it_was_written(tmp_path: Path) -> None:
    written = [evaluated("base", [*TWO_TASKS, lost("a")]), evaluated("sft", TWO_TASKS, "mbpp:test")]
    assert write_report(tmp_path, written) == [tmp_path / "report.json", tmp_path / "report.md"]
    assert read_report(tmp_path) == written
    assert isinstance(read_report(tmp_path)[0].interval, Interval)


def test_a_later_stage_adds_its_row_and_a_stage_run_again_replaces_its_own(tmp_path: Path) -> None:
    assert read_report(tmp_path) == []
    worse = evaluated("grpo", [rollout("a", Verdict.WRONG)])
    better = evaluated("grpo", [rollout("a", Verdict.PASS)])
    for one in (
        evaluated("base", TWO_TASKS),
        worse,
        evaluated("grpo", TWO_TASKS, "mbpp:test"),
        better,
    ):
        write_report(tmp_path, [*read_report(tmp_path), one])
    found = read_report(tmp_path)
    assert [(one.name, one.tasks_spec) for one in found] == [
        ("base", "drills:test"),
        ("grpo", "drills:test"),
        ("grpo", "mbpp:test"),
    ]
    assert found[1].pass_at[1] == 1.0


def test_the_markdown_report_shows_rates_intervals_lengths_verdicts_and_losses(
    tmp_path: Path,
) -> None:
    write_report(
        tmp_path,
        [evaluated("base", [rollout("a|b", Verdict.PASS), lost("c")]), evaluated("sft", TWO_TASKS)],
    )
    text = (tmp_path / "report.md").read_text()
    assert "| base | drills:test, 1 x 1 | 100.0% | 20.7% to 100.0% |  | 1 of 2 | 4 |" in text
    assert "| sft | drills:test, 2 x 2 | 25.0% |" in text
    assert "| stage | tasks | pass | wrong | timeout |" in text
    assert "| sft | drills:test | 1 | 2 | 1 |" in text


@pytest.mark.parametrize("text", ["{", "[]", '{"evaluations": [{"name": "x"}]}'])
def test_a_file_that_is_not_a_report_is_named_in_the_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(DataError, match=r"report\.json"):
        read_report(tmp_path)


def test_the_table_in_a_terminal_has_one_row_for_each_stage() -> None:
    console = Console(width=140)
    with console.capture() as captured:
        console.print(table([evaluated("base", TWO_TASKS), evaluated("sft", TWO_TASKS)]))
    lines = captured.get().splitlines()
    assert len(lines) == 3
    assert lines[2].split()[:6] == ["sft", "drills:test,", "2", "x", "2", "25.0%"]


def test_a_narrow_terminal_shortens_names_and_never_numbers() -> None:
    name, spec = "a/very/long/path/to/a/model/step_000050", "jsonl:somewhere/far/away/tasks.jsonl"
    wide, narrow = (
        printed(table([evaluated(name, TWO_TASKS, spec)], width=width), width)
        for width in (200, 80)
    )
    assert name in wide
    assert spec in wide
    assert name not in narrow
    assert "step_000050" in narrow
    assert "tasks.jsonl, 2 x 2" in narrow
    numbers = wide.split()[-6:]
    assert narrow.split()[-6:] == numbers
    assert max(map(len, narrow.splitlines())) <= 80


def printed(shown: Table, width: int) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def test_forgeable_passes_are_told_in_a_line_only_where_there_are_any() -> None:
    assert tell_forgeable(0) == ""
    assert tell_forgeable(2) == "\nforgeable 2 of the passes"


def test_half_a_line_of_a_killed_run_is_left_out_of_its_held_out_checks(tmp_path: Path) -> None:
    (tmp_path / "grpo").mkdir()
    row = '{"step": 1, "held_out/rollouts/drills": 4.0, "held_out/paid_pass_rate/drills": 0.5,'
    row += ' "held_out/pass_rate/drills": 0.25}\n'
    (tmp_path / "grpo/metrics.jsonl").write_text(row + row[:-9])
    assert read_held_out(tmp_path) == [HeldOut("grpo", "drills", 4, 0.5, 0.25)]


STAGE = """\
seed = 3
[algorithm]
name = "grpo"
[optimizer]
lr = 1e-5
[policy]
model = "start"
[tasks]
train = ["drills:train", "mbpp"]
"""


def test_the_report_of_a_run_has_its_model_algorithm_settings_versions_and_times(
    tmp_path: Path,
) -> None:
    (tmp_path / "grpo").mkdir()
    (tmp_path / "grpo/config.toml").write_text(STAGE)
    rows = (
        '{"step": 1, "time": 1700000000.5, "rollout/taught_so_far": 0.5, "rollout/visits": 1.0}\n'
        '{"step": 2, "time": 1700003600.0, "rollout/taught_so_far": 0.687, "rollout/visits": 1.2}\n'
    )
    (tmp_path / "grpo/metrics.jsonl").write_text(rows)
    (tmp_path / "stages.png").touch()
    write_report(tmp_path, [])
    text = (tmp_path / "report.md").read_text()
    assert (
        "| grpo | grpo | start | drills:train, mbpp | 3 | 2 | 1e-05 | 68.7% | 1.2"
        " | 2023-11-14 22:13:20 | 2023-11-14 23:13:20 |"
    ) in text
    assert f"torch {version('torch')}" in text
    assert "\n![stages](stages.png)\n" in text
    assert f"### Settings of grpo\n\n```toml\n{STAGE}```" in text


def test_the_report_of_an_evaluation_says_nothing_of_a_run(tmp_path: Path) -> None:
    write_report(tmp_path, [evaluated("sft", TWO_TASKS)])
    assert "## Run" not in (tmp_path / "report.md").read_text()
