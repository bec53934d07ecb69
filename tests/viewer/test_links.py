"""Links in a run that somebody sent: what lies out of the folder of runs is shown nowhere."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.errors import SettingsError
from assay.trackers.rollouts import VOCABULARY, write_vocabulary
from assay.viewer.folders import RunsFolder
from tests.viewer.made import made_rollout, make_run

SECRET = "s3cr3t"
LINKS = (
    "sent", "sent/grpo", "sent/report.json", "sent/grpo/config.toml", "sent/grpo/metrics.jsonl",
    "sent/grpo/events.jsonl", f"sent/grpo/{VOCABULARY}", "sent/grpo/rollouts",
    "sent/grpo/rollouts/step_000003.parquet", "sent/grpo/evaluations",
    "sent/grpo/evaluations/step_000003.parquet",
)  # fmt: skip
SHOWN = (["view", "{runs}", "--export", "{page}"], ["show", "{runs}", "--json"],
         *([["show", "{runs}", "--json", "--sql", f"select * from {table}"]
            for table in ("rollouts", "metrics")] if find_spec("duckdb") else []))  # fmt: skip


def secret_run(folder: Path) -> Path:
    """A run with the secret in every file that the viewer reads."""
    made = make_run(folder, extra=[made_rollout(f"set/{SECRET}", output=SECRET)])
    stage = made / "grpo"
    for file in [made / "report.json", stage / "config.toml", stage / "events.jsonl"]:
        text = file.read_text().replace("made", SECRET).replace("entropy collapsed", SECRET)
        file.write_text(text.replace('"grpo"', f'"{SECRET}"'))
    with (stage / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps({"step": 4, SECRET: 1.0}) + "\n")
    write_vocabulary(stage, [SECRET.encode()] * 256)
    for step in (stage / "rollouts").glob("*.parquet"):
        shutil.copy(stage / "rollouts/step_000003.parquet", stage / "evaluations" / step.name)
    return made


@pytest.mark.parametrize("link", LINKS)
def test_what_a_link_leads_to_out_of_the_runs_folder_is_neither_shown_nor_exported(
    tmp_path: Path, link: str
) -> None:
    runs, page = tmp_path / "runs", tmp_path / "page.html"
    make_run(runs / "mine")
    make_run(runs / "sent")
    secret_run(tmp_path / "other/sent")
    for there in (runs / "mine", runs / "sent"):
        for step in (there / "grpo/rollouts").glob("*.parquet"):
            shutil.copy(step, there / "grpo/evaluations" / step.name)
    place = runs / link
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    place.symlink_to(tmp_path / "other" / link)
    named = (["show", "{runs}/sent", "--json"],) if link != "sent" else ()
    for words in (*SHOWN, *named):
        done = CliRunner().invoke(app, [one.format(runs=runs, page=page) for one in words])
        assert SECRET not in done.output
        assert done.exit_code == 0 or isinstance(done.exception, SettingsError), done.output
    assert SECRET not in page.read_text()


def test_a_run_whose_files_all_are_links_out_of_it_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/sent").symlink_to(secret_run(tmp_path / "other"))
    with pytest.raises(SettingsError, match="links that lead out of it are not followed"):
        RunsFolder(tmp_path / "runs")


def test_links_within_the_folder_of_runs_are_followed(tmp_path: Path) -> None:
    make_run(tmp_path / "made")
    (tmp_path / "best").symlink_to(tmp_path / "made")
    assert {*RunsFolder(tmp_path).runs()} == {"made", "best"}
