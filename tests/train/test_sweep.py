"""A sweep: one run after another in folders of their own, resumed, compared at the end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.commands.train import sweep
from assay.errors import SettingsError
from tests.train.test_stages import PLAN


def test_seeds_and_values_are_combined_and_each_run_is_named_after_its_own() -> None:
    assert sweep("", ()) == {}
    assert list(sweep("0..2", ())) == ["seed-0", "seed-1", "seed-2"]
    assert sweep("3,5", ["optimizer.lr=1e-6,3e-6"])["optimizer.lr-3e-6_seed-5"] == [
        "--optimizer.lr", "3e-6", "--seed", "5"
    ]  # fmt: skip


def test_a_value_may_be_a_list_and_no_two_runs_have_one_name() -> None:
    members = sweep("", ["optimizer.betas=[0.9,0.95],[0.9,0.99]"])
    assert [words[1] for words in members.values()] == ["[0.9,0.95]", "[0.9,0.99]"]
    with pytest.raises(
        SettingsError, match=r"two runs of the sweep would be named policy\.model-a-x"
    ):
        sweep("", ["policy.model=a/x,a-x"])


@pytest.mark.parametrize(
    ("seeds", "values"), [("0-4", ()), ("a", ()), ("4..0", ()), ("", ["optimizer.lr"])]
)
def test_words_of_another_form_are_refused(seeds: str, values: list[str]) -> None:
    with pytest.raises(SettingsError, match="write"):
        sweep(seeds, values)


@pytest.mark.long
def test_a_sweep_over_seeds_ends_with_one_row_for_each_stage_and_resumes(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(f'name = "all"\n{PLAN}')
    words = ["train", str(tmp_path / "plan.toml"), "--folder", str(tmp_path), "--seeds", "0..1"]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    (row,) = re.findall(r"^\S*all/seeds \(2\)/first +2 +(\S+ ± \S+)", first.stdout, re.MULTILINE)
    assert row == "0.0% ± 0.0"
    saved = tmp_path / "all/seed-1/first/checkpoints/step_000001/model.safetensors"
    time = saved.stat().st_mtime_ns
    again = CliRunner().invoke(app, words)
    assert again.stdout.count("first: finished") == 2
    assert again.stdout.split("\n\n", 1)[1] == first.stdout.split("\n\n", 1)[1]
    assert saved.stat().st_mtime_ns == time


def test_a_sweep_below_a_single_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(f'name = "all"\n{PLAN}')
    (tmp_path / "all/first").mkdir(parents=True)
    (tmp_path / "all/first/config.toml").touch()
    words = ["train", str(tmp_path / "plan.toml"), "--folder", str(tmp_path), "--seeds", "0..1"]
    done = CliRunner().invoke(app, words)
    assert "holds a single run; choose another --name" in str(done.exception)


def test_a_single_run_above_those_of_a_sweep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(f'name = "all"\n{PLAN}')
    (tmp_path / "all/seed-0/first").mkdir(parents=True)
    (tmp_path / "all/seed-0/first/config.toml").touch()
    words = ["train", str(tmp_path / "plan.toml"), "--folder", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert "holds the runs of a sweep; choose another --name" in str(done.exception)
