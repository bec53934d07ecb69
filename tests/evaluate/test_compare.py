"""The comparison of runs, stages and reports: what is a row, and against what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from assay.cli import app
from assay.config.load_settings import dump
from assay.errors import DataError
from assay.evaluate.compare import compare
from assay.evaluate.report import Evaluation, title, write_report
from assay.maths.estimates import Interval
from tests.evaluate.test_report import TWO_TASKS, evaluated
from tests.policies import run_settings

HALF = evaluated("sft", TWO_TASKS)


def evaluation(name: str, passed: Mapping[str, int], samples: int = 1) -> Evaluation:
    """An evaluation in which of each task so many of `samples` completions pass."""
    from assay.evaluate.counts import TaskResult

    tasks = tuple(TaskResult(id, count, samples) for id, count in passed.items())
    rate = sum(passed.values()) / samples / len(passed)
    return replace(
        HALF, name=name, tasks=len(tasks), samples=samples, per_task=tasks, pass_at={1: rate},
        interval=Interval(0, 1), mean_length=10.0 * samples, temperature=1.0,
    )  # fmt: skip


def run(folder: Path, seed: int, *evaluations: Evaluation, lr: float = 1e-4) -> Path:
    """The folder of a run as training leaves it, without its checkpoints."""
    place = folder / f"seed-{seed}"
    for stage in ("sft", "grpo"):
        settings = run_settings(
            name=place.name, folder=str(folder), seed=seed, stage=stage,
            algorithm={"name": stage}, optimizer={"lr": lr},
            policy={"model": str(place / "start")},
        )  # fmt: skip
        (place / stage).mkdir(parents=True)
        (place / stage / "config.toml").write_text(dump(settings, place / stage))
    write_report(place, evaluations)
    return place


def tasks(*passed: int) -> dict[str, int]:
    return {f"t/{number}": count for number, count in enumerate(passed)}


def test_the_table_has_model_method_rate_tasks_passed_and_length(tmp_path: Path) -> None:
    place = run(
        tmp_path, 0, evaluation("base", tasks(0, 0, 0, 1)), evaluation("sft", tasks(0, 1, 1, 1)),
        evaluation("grpo", tasks(1, 1, 1, 1)),
    )  # fmt: skip
    found = compare([place])
    assert [(row.method, row.seeds.mean, row.passed, row.tasks) for row in found.rows] == [
        ("", 0.25, 1, 4), ("sft", 0.75, 3, 4), ("grpo", 1.0, 4, 4)
    ]  # fmt: skip
    assert f"| {place}/sft | sft | 1 | 75.0% | " in found.markdown()
    assert "| 3/4 | 10 |" in found.markdown()
    against = [(one.model, one.against, one.paired.wins) for one in found.comparisons]
    base = f"{place}/base"
    assert against == [(f"{place}/sft", base, 2), (f"{place}/grpo", base, 3)]
    assert "2 comparisons" in found.markdown()


def test_on_a_terminal_of_80_columns_names_are_shortened_and_no_number_is(tmp_path: Path) -> None:
    place = run(
        tmp_path / ("long" * 20), 0, evaluation("base", tasks(0, 0, 0, 1), samples=64),
        evaluation("sft", tasks(0, 1, 1, 1)), evaluation("grpo", tasks(1, 1, 1, 1)),
    )  # fmt: skip
    comparison = compare([place])
    console = Console(width=80)
    with console.capture() as capture:
        console.print(*comparison.tables(width=80))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= 80
    first, base, sft, grpo = (line.split() for line in lines[:4])
    assert first == ["model", "seeds", "pass@1", "95", "%", "passed/tasks", "tokens"]
    assert base[0].startswith("…")
    assert base[0].endswith("/base")
    assert (sft[2], grpo[2], sft[-2:], grpo[-2:]) == (
        "75.0%", "100.0%", ["3/4", "10"], ["4/4", "10"]
    )  # fmt: skip
    assert "won/lost/tied" in capture.get()
    assert [line.split()[-3] for line in lines[-2:]] == ["3/0/1", "4/0/0"]


def test_the_command_prints_tables_for_a_terminal_and_markdown_where_it_is_wanted(
    tmp_path: Path,
) -> None:
    place = run(
        tmp_path / ("long" * 20), 0, evaluation("base", tasks(0, 0)), evaluation("sft", tasks(0, 1))
    )

    def printed(*words: str) -> list[str]:
        done = CliRunner().invoke(app, ["compare", str(place), *words], env={"COLUMNS": "80"})
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()

    table = [line for line in printed() if "%" in line and "interval" not in line]
    assert max(map(len, table)) <= 80
    assert not any(line.startswith("|") for line in table)
    assert f"| {place}/sft | sft | 1 | 50.0% " in "\n".join(printed("--markdown"))


def test_several_runs_count_with_their_last_evaluation_and_a_stage_with_its_own(
    tmp_path: Path,
) -> None:
    made = evaluation("sft", tasks(0, 1)), evaluation("grpo", tasks(1, 1))
    one, other = run(tmp_path, 0, *made), run(tmp_path / "low", 1, *made, lr=1e-5)
    rows = compare([one, other]).rows
    assert [row.model for row in rows] == [f"{one}/grpo", f"{other}/grpo"]
    rows = compare([one / "sft", other]).rows
    assert [row.model for row in rows] == [f"{one}/sft", f"{other}/grpo"]


def test_runs_that_differ_only_in_the_seed_are_one_row_with_their_spread(tmp_path: Path) -> None:
    folder = tmp_path / "seed001"
    folder.mkdir()
    run(folder, 0, evaluation("base", tasks(0, 0)), evaluation("sft", tasks(2, 0), 4))
    run(folder, 1, evaluation("base", tasks(0, 0)), evaluation("sft", tasks(4, 2), 4))
    found = compare([folder])
    base, sft = found.rows
    assert (sft.model, sft.seeds.seeds) == (f"{folder}/seeds (2)/sft", 2)
    assert sft.seeds.mean == 0.5
    assert sft.seeds.deviation == pytest.approx(0.5 / 2**0.5)
    assert sft.rates == {"t/0": 0.75, "t/1": 0.25}
    assert "both sources of variation" in found.markdown()
    assert base.seeds.seeds == 2
    rows = compare([folder / "seed-0", folder / "seed-1"]).rows
    assert [row.seeds.seeds for row in rows] == [2]


def test_a_copied_run_is_no_second_seed(tmp_path: Path) -> None:
    first = run(tmp_path / "a", 3, evaluation("sft", tasks(2, 0), 4))
    copy = run(tmp_path / "b", 3, evaluation("sft", tasks(2, 0), 4))
    again = run(tmp_path / "c", 3, evaluation("sft", tasks(3, 0), 4))
    other = run(tmp_path / "d", 4, evaluation("sft", tasks(2, 0), 4))
    found = compare([first, copy])
    assert [row.seeds.seeds for row in found.rows] == [1]
    assert f"A run is left out: {copy} has the seed and the results of {first}." in found.notes
    assert [row.seeds.seeds for row in compare([first, copy, again, other]).rows] == [3]


def test_sampled_and_greedy_rows_are_told_apart_and_compared_with_their_like(
    tmp_path: Path,
) -> None:
    made = evaluation("sft", tasks(2, 1), 4)
    greedy = replace(evaluation("sft", tasks(1, 0)), temperature=0.0)
    one, other = run(tmp_path, 0, made, greedy), run(tmp_path / "low", 1, made, greedy, lr=1e-5)
    found = compare([one, other])
    spec = made.tasks_spec
    assert [row.model for row in found.rows] == [
        f"{place}/sft, {way}" for place in (one, other) for way in (spec, f"{spec}, greedy")
    ]
    assert [(pair.model, pair.against) for pair in found.comparisons[1:]] == [
        (f"{other}/sft, {way}", f"{one}/sft, {way}") for way in (spec, f"{spec}, greedy")
    ]


def test_runs_with_another_setting_are_not_seeds_of_one_recipe(tmp_path: Path) -> None:
    run(tmp_path, 0, evaluation("sft", tasks(0, 1)))
    run(tmp_path, 1, evaluation("sft", tasks(0, 1)), lr=1e-5)
    assert [row.seeds.seeds for row in compare([tmp_path]).rows] == [1, 1]


def test_only_common_tasks_count_and_their_number_is_said(tmp_path: Path) -> None:
    one = run(tmp_path, 0, evaluation("sft", tasks(0, 1, 1)))
    other = run(tmp_path / "low", 1, evaluation("sft", tasks(1, 1)), lr=1e-5)
    found = compare([one, other])
    assert (found.comparisons[0].paired.tasks, found.comparisons[0].tasks_apart) == (2, 1)
    assert "share 2 tasks; 1 that only one of them has" in found.markdown()


def test_evaluations_without_a_common_task_are_refused_in_one_line(tmp_path: Path) -> None:
    one = run(tmp_path, 0, evaluation("sft", {"a": 1}))
    other = run(tmp_path / "low", 1, evaluation("sft", {"b": 1}), lr=1e-5)
    with pytest.raises(DataError, match="have no task in common"):
        compare([one, other])
    with pytest.raises(DataError, match=r"nothing holds no evaluation; name a run"):
        compare([tmp_path / "nothing"])


def reported(folder: Path, model: Path, made: Evaluation, **setup: object) -> Path:
    """A folder as `assay eval` leaves it."""
    folder.mkdir(parents=True)
    write_report(folder, [made], {"model": {"model": str(model)}, "tasks_sha256": "x", **setup})
    return folder


@pytest.mark.parametrize("left", ["", "name = [", '[policy]\ndtype = "float32"'])
def test_settings_that_cannot_be_read_are_named_in_one_line(tmp_path: Path, left: str) -> None:
    place = run(tmp_path, 0, evaluation("base", tasks(0, 1)), evaluation("sft", tasks(1, 1)))
    (place / "sft" / "config.toml").write_text(left)
    with pytest.raises(DataError, match=r"sft/config\.toml cannot be read: "):
        compare([place])


def test_an_evaluation_of_a_checkpoint_has_the_method_of_its_stage(tmp_path: Path) -> None:
    made = evaluation("grpo/step_000003", tasks(0, 1))
    for seed in (0, 1):
        place = run(tmp_path / "runs", seed, made)
        reported(tmp_path / f"eval-{seed}", place / "grpo/checkpoints/step_000003", made, seed=0)
    base = reported(tmp_path / "base", Path("some/model"), evaluation("model", tasks(0, 0)))
    found = compare([base / "report.json", tmp_path / "eval-0", tmp_path / "eval-1"])
    assert [(row.model, row.method, row.seeds.seeds) for row in found.rows] == [
        ("model", "", 1), ("grpo/step_000003", "grpo", 2)
    ]  # fmt: skip


def test_tasks_of_the_same_names_with_other_content_are_refused(tmp_path: Path) -> None:
    one = reported(tmp_path / "one", Path("a/b"), evaluation("b", tasks(0, 1)))
    other = reported(
        tmp_path / "other", Path("a/c"), evaluation("c", tasks(0, 1)), tasks_sha256="y"
    )
    with pytest.raises(DataError, match="same names, but with other content"):
        compare([one, other])


def test_what_evaluations_differ_in_beside_model_and_tasks_is_said(tmp_path: Path) -> None:
    made = tasks(0, 1)
    one = reported(
        tmp_path / "one", Path("a/b"), evaluation("b", made), sampling={"max_tokens": 8}, seed=1
    )
    other = reported(
        tmp_path / "other", Path("a/c"), evaluation("c", made), sampling={"max_tokens": 9}, seed=2
    )
    note = "The evaluations were made differently, in sampling.max_tokens:"
    assert [text for text in compare([one, other]).notes if text.startswith(note)]
    assert not [text for text in compare([one, one]).notes if "differently" in text]


def test_the_command_prints_markdown_or_json(tmp_path: Path) -> None:
    place = run(tmp_path, 0, evaluation("base", tasks(0, 0)), evaluation("sft", tasks(1, 1)))
    done = CliRunner().invoke(app, ["compare", str(place), "--markdown"])
    assert done.stdout.startswith("| model | method | seeds | pass@1 |")
    rows = json.loads(CliRunner().invoke(app, ["compare", str(place), "--json"]).stdout)["rows"]
    assert rows[1]["rates"] == {"t/0": 1, "t/1": 1}


def test_each_evaluation_of_a_report_of_several_has_its_own_setup(tmp_path: Path) -> None:
    place = run(tmp_path / "runs", 0, evaluation("grpo", tasks(0, 1)))
    checkpoint = {"model": {"model": str(place / "grpo/checkpoints/step_000003")}}
    made = evaluation("some/model", tasks(0, 0)), evaluation("grpo/step_000003", tasks(0, 1))
    setups = [{"model": {"model": "some/model"}}, checkpoint]
    (tmp_path / "evals").mkdir()
    titles = (title(one) for one in made)
    write_report(tmp_path / "evals", made, setups=dict(zip(titles, setups, strict=True)))
    rows = compare([tmp_path / "evals"]).rows
    assert [(row.model, row.method) for row in rows] == [
        ("some/model", ""), ("grpo/step_000003", "grpo")
    ]  # fmt: skip
