"""The pictures are made, and draw the numbers that they are given."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.errors import DataError
from assay.evaluate.plots import FAINT, curves, learning_curve, stages
from assay.evaluate.report import Evaluation
from assay.evaluate.run_summary import metrics_rows
from assay.maths.estimates import pass_interval

PNG = b"\x89PNG\r\n\x1a\n"


def metrics(file: Path, *rows: Mapping[str, float | None]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def evaluation(name: str, passed: int) -> Evaluation:
    counts = [(1, 1)] * passed + [(1, 0)] * (33 - passed)
    return Evaluation(
        name=name,
        tasks_spec="drills:test",
        tasks=33,
        samples=1,
        temperature=0.0,
        pass_at={1: passed / 33},
        interval=pass_interval(counts),
        mean_length=120.0,
        truncated=0.0,
        verdicts={"pass": passed, "wrong": 33 - passed},
        dropped=0,
        seconds=1.0,
        per_task=(),
    )


def test_the_learning_curve_of_sft_then_rl_is_a_picture(tmp_path: Path) -> None:
    sft = metrics(
        tmp_path / "sft.jsonl", *({"step": step, "loss": 1 / step} for step in range(1, 50))
    )
    rows = (
        {"step": step, "loss": 0.0, "reward/pass_rate": step / 80, "rollout/length": 90.0}
        for step in range(1, 80)
    )
    assert learning_curve(
        {"sft": sft, "grpo": metrics(tmp_path / "grpo.jsonl", *rows)}, tmp_path / "curve.png"
    )
    assert (tmp_path / "curve.png").read_bytes().startswith(PNG)


def test_a_pass_rate_is_drawn_in_percent_and_hides_the_loss_of_its_stage() -> None:
    rows: list[dict[str, Any]] = [
        {"step": 1, "loss": 0.1, "reward/pass_rate": 0.25, "rollout/length": 80.0},
        {"step": 2, "loss": 0.2, "reward/pass_rate": None, "rollout/length": 60.0},
    ]
    assert curves(rows) == {
        "passes, %": {"reward/pass_rate": [(1, 25.0)]},
        "length, tokens": {"rollout/length": [(1, 80.0), (2, 60.0)]},
    }


def test_evaluations_and_each_reward_term_are_drawn_beside_the_rollouts() -> None:
    row = {"step": 4, "reward/pass_rate": 0.5, "reward/mean": 0.4, "reward/std": 0.1,
           "reward/pass@k": 0.75, "reward/tests": 0.5, "reward/length": -0.125,
           "reward/tests_std": 0.5, "evaluate/pass@1": 0.25, "evaluate/pass@1/mbpp": 0.125,
           "evaluate/length": 90.0, "rollout/length": 80.0}  # fmt: skip
    assert curves([row]) == {
        "passes, %": {"reward/pass_rate": [(4, 50.0)], "evaluate/pass@1": [(4, 25.0)],
                      "evaluate/pass@1/mbpp": [(4, 12.5)]},
        "reward terms": {"reward/tests": [(4, 0.5)], "reward/length": [(4, -0.125)]},
        "length, tokens": {"evaluate/length": [(4, 90.0)], "rollout/length": [(4, 80.0)]},
    }  # fmt: skip


def test_a_stage_without_a_pass_rate_shows_its_loss() -> None:
    assert curves([{"step": 3, "loss": 0.7}]) == {"loss, nats per token": {"loss": [(3, 0.7)]}}


def test_each_stage_has_axes_of_its_own_so_that_a_large_loss_flattens_no_other(
    tmp_path: Path,
) -> None:
    high = metrics(tmp_path / "a.jsonl", {"step": 1, "loss": 900.0}, {"step": 2, "loss": 800.0})
    low = metrics(tmp_path / "b.jsonl", {"step": 1, "loss": 0.2}, {"step": 90, "loss": 0.1})
    assert learning_curve({"high": high, "low": low}, tmp_path / "curve.svg")
    ticks = re.findall(r"<!-- ([\d.]+) -->", (tmp_path / "curve.svg").read_text())
    assert any(float(tick) >= 800 for tick in ticks), "the axis of the first stage"
    assert any(0 < float(tick) <= 0.2 for tick in ticks), "the axis of the second"


COLOURED = re.compile(r"fill: none; stroke: (#[0-9a-f]{6})")


def lines_of(picture: Path) -> list[tuple[str, int]]:
    """The curves of a picture in SVG: the colour of each, and its number of corners."""
    parts = re.findall(r'<path d="([^"]*)" clip-path="[^"]*" style="([^"]*)"',
                       picture.read_text())  # fmt: skip
    curves = [(found[1], len(re.findall("[ML]", path))) for path, style in parts
              if (found := COLOURED.search(style))]  # fmt: skip
    return [(colour, corners) for colour, corners in curves if colour != FAINT]


def test_a_metric_has_one_colour_in_all_stages_and_panels(tmp_path: Path) -> None:
    one = {"reward/pass_rate": 0.5, "rollout/length": 80.0, "reward/lint": 0.5}
    two = {"reward/pass_rate": 0.5, "rollout/length": 80.0, "reward/tests": 0.5,
           "reward/lint": 0.25}  # fmt: skip
    first, second = (
        metrics(tmp_path / f"{name}.jsonl", *({"step": step, **row} for step in range(1, 9)))
        for name, row in (("a", one), ("b", two))
    )
    assert learning_curve({"a": first, "b": second}, tmp_path / "curve.svg")
    by_colour = Counter(colour for colour, _ in lines_of(tmp_path / "curve.svg"))
    # pass rate and length of two stages, lint of two, tests of one
    assert sorted(by_colour.values()) == [1, 2, 4]


def test_two_values_are_points_and_three_are_a_line(tmp_path: Path) -> None:
    rows = [{"step": step, "reward/pass_rate": step / 10} for step in range(1, 4)]
    for rows_drawn, has_line in ((rows[:2], False), (rows, True)):
        file = metrics(tmp_path / "metrics.jsonl", *rows_drawn)
        assert learning_curve({"grpo": file}, tmp_path / "curve.svg")
        assert bool(lines_of(tmp_path / "curve.svg")) is has_line


def test_stages_share_the_axis_of_a_quantity_and_the_picture_names_its_run(tmp_path: Path) -> None:
    low = metrics(tmp_path / "a.jsonl", *({"step": n, "reward/pass_rate": 0.02} for n in range(9)))
    high = metrics(tmp_path / "b.jsonl", *({"step": n, "reward/pass_rate": 0.9} for n in range(9)))
    run = tmp_path / "my-run"
    run.mkdir()
    assert learning_curve({"low": low, "high": high}, run / "curve.svg")
    texts = re.findall(r"<!-- (.*?) -->", (run / "curve.svg").read_text())
    assert "my-run" in texts
    assert texts.count("80") == 2, "the second stage reaches it, and the first has its axis"


def test_half_a_line_at_the_end_of_a_running_run_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert metrics_rows(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": 2.0}]


def test_a_run_that_has_not_learned_yet_gets_no_picture(tmp_path: Path) -> None:
    empty = metrics(tmp_path / "empty.jsonl")
    base = metrics(tmp_path / "base.jsonl", {"step": 0, "evaluate/pass@1": 0.5})
    assert not learning_curve({"sft": empty, "grpo": base}, tmp_path / "curve.png")
    assert not (tmp_path / "curve.png").exists()


def test_a_file_that_is_no_metrics_or_absent_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "text.jsonl").write_text("hello\n")
    with pytest.raises(DataError, match=r"text\.jsonl"):
        learning_curve({"sft": tmp_path / "text.jsonl"}, tmp_path / "curve.png")
    with pytest.raises(DataError, match=r"absent\.jsonl"):
        learning_curve({"sft": tmp_path / "absent.jsonl"}, tmp_path / "curve.png")


@pytest.mark.parametrize("passed", [[0], [33], [5, 12, 16]])
def test_stages_side_by_side_are_a_picture_also_at_nought_and_at_a_hundred_percent(
    tmp_path: Path, passed: list[int]
) -> None:
    stages(
        [evaluation(f"stage {index}", count) for index, count in enumerate(passed)],
        tmp_path / "stages.png",
    )
    assert (tmp_path / "stages.png").read_bytes().startswith(PNG)


def test_the_suffix_chooses_the_kind_of_picture(tmp_path: Path) -> None:
    stages([evaluation("sft", 12)], tmp_path / "stages.svg")
    assert "<svg" in (tmp_path / "stages.svg").read_text()
