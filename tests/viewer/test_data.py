"""What the viewer reads of a run's folder: stages, metrics, rollouts, filters, suspects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.errors import SettingsError
from assay.trackers.jsonl import JsonlTracker
from assay.trackers.rollouts import RolloutTracker, write_rollouts
from assay.types import Rollout, Verdict
from assay.viewer.file_cache import FileCache
from assay.viewer.folders import RunsFolder
from assay.viewer.questions import UnknownError, ViewerAnswers
from assay.viewer.rollout_index import RolloutFiles
from assay.viewer.suspects import _at, _paid_programs
from tests.viewer.made import (
    ADVANTAGE,
    HOSTILE,
    RIGHT,
    WRONG,
    made_rollout,
    make_evaluation,
    make_run,
)

FILES = {"run": "made", "stage": "grpo", "kind": "rollouts"}


@pytest.fixture
def answers(tmp_path: Path) -> ViewerAnswers:
    make_run(tmp_path / "made")
    return ViewerAnswers(RunsFolder(tmp_path))


def listed(answers: ViewerAnswers, **asked: str) -> list[tuple[int, str, int, float]]:
    rows = answers.rollouts(FILES | asked)["rows"]
    return [(row["step"], row["task_id"], row["index"], row["reward"]) for row in rows]


def test_runs_are_listed_with_stages_curve_and_last_evaluation(answers: ViewerAnswers) -> None:
    (run,) = answers.runs({})["runs"]
    assert run["stages"] == [{"name": "grpo", "step": 3}]
    assert run["spark"] == [1 / 3, 2 / 3, 1.0]
    assert run["evaluation"]["pass_at"] == {1: 0.75}
    assert run["alerts"] == 1


def test_a_run_itself_can_be_shown_and_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    assert [*RunsFolder(make_run(tmp_path / "made")).runs()] == ["made"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingsError, match="has no run"):
        RunsFolder(tmp_path / "empty")


def test_only_metrics_that_the_page_lacks_are_sent(answers: ViewerAnswers, tmp_path: Path) -> None:
    first = answers.run({"run": "made"})["stages"][0]["metrics"]
    assert first["columns"]["step"] == [1, 2, 3]
    tracker = JsonlTracker(tmp_path / "made" / "grpo", start_step=3)
    tracker.track(4, {"loss": 0.5, "new": 1.0})
    have = f"grpo {first['count']} {first['tag']}"
    stale = answers.run({"run": "made", "have": have})["stages"][0]["metrics"]
    assert stale["start"] == 0, "a resumed run rewrites its metrics: all are sent again"
    tracker.track(4, {"evaluate/pass@1": 0.5})
    tracker.track(5, {"loss": 0.25})
    have = f"grpo 4 {stale['tag']}"
    new = answers.run({"run": "made", "have": have})["stages"][0]["metrics"]
    assert new["columns"].pop("time")
    assert (new["start"], new["columns"]) == (
        3,
        {"step": [4, 5], "loss": [0.5, 0.25], "new": [1.0, None], "evaluate/pass@1": [0.5, None]},
    ), "the last step that the page has may have got its evaluation since"


def test_evaluations_are_points_with_intervals(answers: ViewerAnswers) -> None:
    before, after = answers.run({"run": "made"})["stages"][0]["points"]
    assert (before["step"], before["pass"], after["step"], after["pass"]) == (0, 0.5, 3, 1.0)
    assert before["low"] < 0.5 < before["high"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"step": "2", "task": "set/a"}, [(2, "set/a", 0, 1.0), (2, "set/a", 1, 0.0)]),
        ({"step": "1", "task": "~B"}, [(1, "set/b", 0, 0.0)]),
        ({"step": "3", "verdict": "pass"}, [(3, "set/a", 0, 1.0)]),
        ({"step": "3", "low": "0.5"}, [(3, "set/a", 0, 1.0)]),
        ({"step": "1", "high": "0.5", "task": "set/a"}, [(1, "set/a", 1, 0.0)]),
        ({"step": "1", "search": "X + 1"}, [(1, "set/a", 0, 1.0)]),
        ({"step": "3", "search": "TRY AGAIN"}, [(3, "set/b", 0, 0.0)]),
        ({"order": "-reward", "count": "2"}, [(3, "set/a", 0, 1.0), (2, "set/a", 0, 1.0)]),
        ({"order": "step", "start": "8"}, [(3, "set/b", 0, 0.0)]),
        ({"step": "9"}, []),
    ],
)
def test_rollouts_are_filtered_searched_and_ordered(
    answers: ViewerAnswers, asked: dict[str, str], expected: list[Any]
) -> None:
    assert listed(answers, **asked) == expected


def test_a_rollout_of_several_turns_is_listed_once_with_all_its_tokens(
    answers: ViewerAnswers,
) -> None:
    (row,) = answers.rollouts(FILES | {"step": "1", "task": "set/b"})["rows"]
    assert (row["turns"], row["length"]) == (1, 2 * len(WRONG))


def test_new_and_replaced_steps_are_read_again(answers: ViewerAnswers, tmp_path: Path) -> None:
    assert answers.rollouts(FILES)["total"] == 9
    assert len(listed(answers, search="X + 1")) == 3
    tracker = RolloutTracker(tmp_path / "made" / "grpo", start_step=2)
    assert answers.rollouts(FILES)["total"] == 6
    tracker.rollouts(3, [[made_rollout("set/z", WRONG)]])
    assert listed(answers, step="3") == [(3, "set/z", 0, 0.0)]
    assert len(listed(answers, search="X + 1")) == 2


def test_searches_find_all_steps_where_files_stay_out_of_memory_and_come_into_it(
    answers: ViewerAnswers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [file.stat().st_size for file in (tmp_path / "made/grpo/rollouts").iterdir()]
    monkeypatch.setattr("assay.viewer.rollout_index.KEPT", sum(sizes) - 1)
    found = [(step, "set/a", 0, 1.0) for step in (3, 2, 1)]
    assert listed(answers, search="X + 1") == found
    assert listed(answers, search="X + 1", step="2") == found[1:2]
    RolloutTracker(tmp_path / "made" / "grpo", start_step=2)  # deletes step 3: the rest is kept
    assert listed(answers, search="X + 1") == found[1:]
    assert listed(answers, search="X + 1", step="2") == found[1:2]


def shown(answers: ViewerAnswers, **place: int) -> Mapping[str, Any]:
    asked = FILES | {name: str(value) for name, value in place.items()}
    found: Mapping[str, Any] = answers.rollout(asked)
    return found


def test_a_rollout_shows_the_prompt_that_was_read_tokens_and_checks(answers: ViewerAnswers) -> None:
    second = shown(answers, step=1, group=0, index=1)
    (turn,) = second["turns"]
    assert turn["prompt"]["text"] == "<user># set/a: add 1<end>"
    assert "".join(turn["tokens"]) == WRONG
    assert len(turn["logprobs"]) == len(WRONG)
    assert [check["hidden"] for check in second["checks"]] == [False, True]
    assert dict(second["tags"]) == {"language": "python", "difficulty": "easy"}
    assert turn["advantages"] == [pytest.approx(-ADVANTAGE)]
    assert [(one["name"], one["outcome"]) for one in turn["tests"]] == [
        ("1", "wrong"), ("2", "error"),
    ]  # fmt: skip
    assert dict(second["parts"]) == {"tests": 0.0, "length": 0.0}


def test_files_without_the_newer_columns_are_shown_too(tmp_path: Path) -> None:
    from pyarrow import parquet

    make_run(tmp_path / "made")
    for file in (tmp_path / "made" / "grpo" / "rollouts").iterdir():
        table = parquet.read_table(file)
        parquet.write_table(table.drop_columns(["length", "checks", "prompt_tokens"]), file)
    (tmp_path / "made" / "grpo" / "vocabulary.parquet").unlink()
    old = shown(ViewerAnswers(RunsFolder(tmp_path)), step=1, group=0, index=0)
    assert old["turns"][0]["prompt"]["text"] == "# set/a: add 1"
    assert (old["checks"], old["turns"][0]["tokens"]) == ([], [])


def test_a_long_text_is_cut_and_comes_in_pieces(tmp_path: Path) -> None:
    long = HOSTILE + "x" * 500_000
    make_run(tmp_path / "made", extra=[made_rollout("set/h", long)])
    answers = ViewerAnswers(RunsFolder(tmp_path))
    place = {"step": 3, "group": 2, "index": 0}
    text = shown(answers, **place)["turns"][0]["completion"]
    made, asked = text["text"], FILES | {name: str(value) for name, value in place.items()}
    assert len(made) == 20_000
    while len(made) < text["total"]:
        more = {"turn": "0", "name": "completion", "start": str(len(made))}
        made += answers.text(asked | more)["text"]
    assert made == long


def test_suspects_are_found_each_for_its_reason(tmp_path: Path) -> None:
    short = [made_rollout(f"set/{n}", "f=abs", verdict=Verdict.PASS) for n in range(3)]
    gap = made_rollout("set/gap", RIGHT + "# for the tests only", verdict=Verdict.PASS,
                       held_out=Verdict.WRONG)  # fmt: skip
    forgeable = made_rollout("set/forgeable", verdict=Verdict.PASS, forgeable=True)
    make_run(tmp_path / "made", extra=[gap, forgeable, *short])
    lists = ViewerAnswers(RunsFolder(tmp_path)).suspects(FILES)
    names = [[row["task_id"] for row in one["rows"]] for one in lists]
    assert names == [["set/gap"], ["set/forgeable"], [], ["set/0"], ["set/0", "set/1", "set/2"]]
    assert [one["count"] for one in lists] == [1, 1, 0, 1, 3]


def test_suspects_that_came_after_the_index_was_read_are_left_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "made", 1) / "grpo" / "rollouts"
    early = [made_rollout(f"early/{n}", "f=abs", verdict=Verdict.PASS) for n in range(3)]
    write_rollouts(folder / "step_000003.parquet", 3, [early])
    files = RolloutFiles(folder, FileCache(tmp_path))
    index = files.index()
    for step in (2, 4):
        late = [made_rollout(f"late/{step}", "f=abs", verdict=Verdict.PASS)]
        write_rollouts(folder / f"step_{step:06d}.parquet", step, [late])
    files.index()  # as another request does
    paid = _paid_programs(files).sort_by([("step", "descending"), ("index", "descending")])
    assert {"late/2", "late/4"} < {*paid["task_id"].to_pylist()}
    names = _at(index, paid)["task_id"].to_pylist()
    assert names[:3] == ["early/2", "early/1", "early/0"]
    assert names == [name for name in paid["task_id"].to_pylist() if name[:4] != "late"]


def paid_for_else(folder: Path, *extra: Rollout, steps: int = 1) -> list[str]:
    """The tasks in the list of what fails and is paid."""
    if steps:
        make_run(folder / "made", steps, extra)
    else:
        stage = make_run(folder / "made", 1) / "grpo"
        write_rollouts(stage / "rollouts" / "step_000001.parquet", 1, [extra])
    lists = ViewerAnswers(RunsFolder(folder)).suspects(FILES)
    (found,) = [one for one in lists if one["why"].startswith("fail, and get 50%")]
    assert found["count"] == len(found["rows"])
    return [row["task_id"] for row in found["rows"]]


def test_what_fails_and_is_paid_half_as_much_as_a_pass_is_suspect(tmp_path: Path) -> None:
    half = made_rollout("set/half", WRONG, reward=0.5)
    most = made_rollout("set/most", WRONG, reward=0.9)
    little = made_rollout("set/format", WRONG, reward=0.2)
    earned = made_rollout("set/fraction", WRONG, reward=0.7, checks_passed=1)
    assert paid_for_else(tmp_path, half, most, little, earned) == ["set/most", "set/half"]


def test_where_nothing_passes_the_highest_reward_stands_for_a_pass(tmp_path: Path) -> None:
    tidy = made_rollout("set/tidy", WRONG, reward=0.9)
    checks = made_rollout("set/checks", WRONG, reward=0.9, checks_passed=1)
    zero = made_rollout("set/zero", WRONG)
    assert paid_for_else(tmp_path / "1", tidy, checks, zero, steps=0) == ["set/tidy"]
    assert paid_for_else(tmp_path / "2", zero, steps=0) == []


def test_a_pass_rate_of_zero_is_a_point_of_the_curve(
    answers: ViewerAnswers, tmp_path: Path
) -> None:
    tracker = JsonlTracker(tmp_path / "made" / "grpo", start_step=3)
    tracker.track(4, {"reward/pass_rate": 0.0})
    tracker.close()
    assert answers.runs({})["runs"][0]["spark"] == [1 / 3, 2 / 3, 1.0, 0.0]


@pytest.mark.parametrize(
    "asked",
    [{"run": "../made"}, {"run": "nobody"}, {"stage": ".."}, {"kind": "../../secret"},
     {"order": "task_id"}],
)  # fmt: skip
def test_names_that_were_not_listed_are_unknown(
    answers: ViewerAnswers, asked: dict[str, str]
) -> None:
    with pytest.raises(UnknownError):
        answers.rollouts(FILES | asked)


def test_nothing_in_a_run_is_written(answers: ViewerAnswers, tmp_path: Path) -> None:
    before = {str(one): one.stat().st_mtime_ns for one in tmp_path.rglob("*")}
    for folder, _, _ in os.walk(tmp_path):
        Path(folder).chmod(0o500)
    answers.runs({})
    answers.run({"run": "made"})
    answers.suspects(FILES)
    shown(answers, step=1, group=0, index=0)
    for folder, _, _ in os.walk(tmp_path):
        Path(folder).chmod(0o700)
    assert {str(one): one.stat().st_mtime_ns for one in tmp_path.rglob("*")} == before


def test_a_task_has_its_passes_and_rewards_by_step_and_whether_they_differed(
    answers: ViewerAnswers,
) -> None:
    first, second = answers.tasks(FILES)
    taught = [[step, 1, 2, 0.5, True] for step in (1, 2, 3)]  # rewards 1 and 0
    assert first == {"task_id": "set/a", "steps": taught}
    flat = [[step, 0, 1, 0.0, False] for step in (1, 2, 3)]  # one reward
    assert second == {"task_id": "set/b", "steps": flat}


def test_curves_of_a_metric_know_the_runs_of_one_recipe(tmp_path: Path) -> None:
    for run, seed, name in (("a_seed1", 1, "grpo"), ("a_seed2", 2, "grpo"), ("b", 1, "rloo")):
        stage = make_run(tmp_path / run) / "grpo"
        settings = f'name = "{run}"\nseed = {seed}\n[algorithm]\nname = "{name}"\n'
        (stage / "config.toml").write_text(settings)
    found = ViewerAnswers(RunsFolder(tmp_path)).curves({"metric": "reward/mean"})
    curves = {one["run"]: one for one in found["curves"]}
    assert (curves["b"]["steps"], curves["b"]["values"]) == ([1, 2, 3], [1 / 3, 2 / 3, 1.0])
    assert curves["a_seed1"]["recipe"] == curves["a_seed2"]["recipe"] != curves["b"]["recipe"]
    assert {"loss", "reward/pass_rate"} < set(found["metrics"])
    assert ViewerAnswers(RunsFolder(tmp_path)).curves({"metric": "none"})["curves"] == []


def test_a_long_curve_is_thinned_to_its_end(tmp_path: Path) -> None:
    tracker = JsonlTracker(make_run(tmp_path / "made") / "grpo", start_step=3)
    for step in range(4, 5001):
        tracker.track(step, {"loss": float(step)})
    tracker.close()
    (curve,) = ViewerAnswers(RunsFolder(tmp_path)).curves({"metric": "loss"})["curves"]
    assert (len(curve["steps"]), curve["steps"][-2:]) == (500, [4990, 5000])


def test_an_evaluation_has_tags_protocol_and_its_rollouts_and_is_compared(tmp_path: Path) -> None:
    make_evaluation(tmp_path / "a")
    make_evaluation(tmp_path / "b", ("set/a", "set/c"))
    answers = ViewerAnswers(RunsFolder(tmp_path))
    one = answers.evaluation({"run": "a", "at": "0", "with_run": "b", "with_at": "0"})
    assert one["protocol"][1:] == ["seed: 7", 'sampling: {"temperature": 1.0}']
    assert one["place"] == {"stage": "evaluation", "step": 0}
    assert [task["tags"]["difficulty"] for task in one["per_task"]] == ["easy", "easy"]
    assert (one["difference"]["difference"], one["difference"]["wins"]) == (0.5, 1)
    assert [task["passed"] for task in one["other"]["per_task"]] == [1, 1]
    files = {"run": "a", "stage": "evaluation", "kind": "evaluations"}
    assert [row["verdict"] for row in answers.rollouts(files)["rows"]] == ["pass", "wrong"]
    with pytest.raises(UnknownError, match="no run 'c'"):
        answers.evaluation({"run": "a", "at": "0", "with_run": "c", "with_at": "0"})


def test_an_evaluation_while_training_leads_to_the_rollouts_of_its_stage(
    answers: ViewerAnswers,
) -> None:
    one = answers.evaluation({"run": "made", "at": "0"})
    assert one["place"] == {"stage": "grpo", "step": 3}
    assert (one["protocol"], one["groups"]["difficulty"]["hard"]["pass_at_1"]) == ([], 0.5)


def test_a_report_of_an_older_evaluation_has_no_rollouts(tmp_path: Path) -> None:
    make_evaluation(tmp_path / "a")
    for file in (tmp_path / "a" / "evaluations").iterdir():
        file.unlink()
    (tmp_path / "a" / "evaluations").rmdir()
    one = ViewerAnswers(RunsFolder(tmp_path)).evaluation({"run": "a", "at": "0"})
    assert (one["place"], one["per_task"][0]["tags"]) == (None, {})


UNKNOWN = 300
"""An id behind the vocabulary, whose tokens are bytes."""


@pytest.mark.parametrize(
    ("tokens", "texts"),
    [
        ([UNKNOWN, 97, 98], ["", "a", "b"]),
        ([97, UNKNOWN, 98], ["a", "", "b"]),
        ([97, 98, UNKNOWN], ["a", "b", ""]),
        ([-1, 97, 98], ["", "a", "b"]),
        ([0xC3, 0xA9, 98], ["", "é", "b"]),
        ([0xC3, UNKNOWN, 0xA9, 98], ["", "", "é", "b"]),
        ([0xC3, 98, 99], ["", "\ufffdb", "c"]),
        ([97, 98, 0xC3], ["a", "b", "\ufffd"]),
    ],
    ids=str,
)  # fmt: skip
def test_the_text_of_a_token_is_at_its_own_place(
    tmp_path: Path, tokens: list[int], texts: list[str]
) -> None:
    """Its colour is by its place: a token without a text must not shift those behind it."""
    run = make_run(tmp_path / "made", steps=1)
    rollout = made_rollout("set/a")
    (turn,) = rollout.turns
    logprobs = tuple(-float(place) for place in range(len(tokens)))
    completion = replace(turn.completion, tokens=tuple(tokens), logprobs=logprobs)
    rollout = replace(rollout, turns=(replace(turn, completion=completion),))
    write_rollouts(run / "grpo" / "rollouts" / "step_000001.parquet", 1, [[rollout]])
    place = {"step": "1", "group": "0", "index": "0"}
    (shown,) = ViewerAnswers(RunsFolder(tmp_path)).rollout(FILES | place)["turns"]
    assert shown["tokens"] == texts
    assert shown["logprobs"] == [*logprobs]


def test_runs_have_the_settings_in_which_they_differ_and_are_finished_at_their_last_step(
    tmp_path: Path,
) -> None:
    for name, steps in (("a", 3), ("b", 9)):
        stage = make_run(tmp_path / name) / "grpo"
        text = f'name = "{name}"\nsteps = {steps}\n[algorithm]\nname = "grpo"\n'
        (stage / "config.toml").write_text(text)
    runs = {run["name"]: run for run in ViewerAnswers(RunsFolder(tmp_path)).runs({})["runs"]}
    assert [runs[name]["settings"] for name in "ab"] == [{"steps": 3}, {"steps": 9}]
    assert [runs[name]["finished"] for name in "ab"] == [True, False]


def test_a_run_whose_last_evaluation_is_still_to_come_is_not_finished(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    (run / "grpo" / "config.toml").write_text('steps = 3\n[evaluate]\ntasks = ["set:test"]\n')
    assert RunsFolder(tmp_path).runs()["a"].finished
    (run / "report.json").unlink()
    assert not RunsFolder(tmp_path).runs()["a"].finished


def test_each_list_of_suspects_says_what_to_do(tmp_path: Path) -> None:
    make_run(tmp_path / "made")
    for one in ViewerAnswers(RunsFolder(tmp_path)).suspects(FILES):
        assert len(one["advice"].split()) > 5
