"""assay show: the state of runs as tables, as JSON and by SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from assay.cli import app
from assay.errors import SettingsError
from assay.viewer.folders import RunsFolder
from assay.viewer.page_server import build
from assay.viewer.single_page import export_page
from tests.viewer.made import make_run

needs_duckdb = pytest.mark.skipif(not find_spec("duckdb"), reason="needs the extra `sql`")
COUNT = "select stage, verdict, count(*) as n from rollouts where kind = 'rollouts' group by all"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_run(tmp_path_factory.mktemp("runs") / "it's made")
    event = {"step": 3, "event": "x", "text": "\x1b[2Jred\u202e", "time": 0.0}
    with (made / "grpo" / "events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")
    return made


def shown(folder: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["show", str(folder), *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_newest_state_of_a_run_is_json(folder: Path) -> None:
    (run,) = json.loads(shown(folder, "--json"))["runs"]
    (stage,) = run["stages"]
    assert (stage["name"], stage["step"], stage["metrics"]["reward/pass_rate"]) == ("grpo", 3, 1.0)
    assert run["evaluations"][0]["interval"] == {"low": 0.5, "high": 0.9}
    assert run["alerts"][0]["text"] == "entropy collapsed"


def test_people_get_tables_whose_texts_cannot_write_to_a_terminal(folder: Path) -> None:
    text = shown(folder)
    assert "grpo" in text
    assert "\\x1b[2Jred\\u202e" in text
    assert not {"\x1b", "\u202e"} & set(text)


def test_on_a_terminal_of_80_columns_every_head_is_whole(folder: Path) -> None:
    done = CliRunner().invoke(app, ["show", str(folder)], env={"COLUMNS": "80"})
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    (heads,) = (number for number, line in enumerate(lines) if line.startswith("stage "))
    assert lines[heads - 1].split()[:2] == ["reward/", "reward/"]
    assert lines[heads].split()[:4] == ["stage", "step", "pass_rate", "mean"]
    assert "policy" in done.stdout
    assert "…" not in "".join(lines[heads - 1 : heads + 1])


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


NOT_FINITE = "select 'nan'::double as a, '-inf'::double as b, ['inf'::double, 1.0] as c"


@needs_duckdb
def test_a_query_gives_null_for_numbers_that_are_not_finite(folder: Path) -> None:
    text = shown(folder, "--json", "--sql", NOT_FINITE)
    assert json.loads(text, parse_constant=refuse)["rows"] == [{"a": None, "b": None,
                                                                "c": [None, 1.0]}]  # fmt: skip


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_metric_that_is_not_finite_is_null_as_json(tmp_path: Path, number: str) -> None:
    """As another program, or an older version, may have written it."""
    run = make_run(tmp_path / "made")
    with (run / "grpo" / "metrics.jsonl").open("a") as file:
        file.write(f'{{"step": 4, "loss": {number}, "reward/mean": 0.5}}\n')
    (state,) = json.loads(shown(run, "--json"), parse_constant=refuse)["runs"]
    assert state["stages"][0]["metrics"]["loss"] is None
    assert state["stages"][0]["metrics"]["reward/mean"] == 0.5
    runs = RunsFolder(run)
    answer = TestClient(build(runs), base_url="http://127.0.0.1:1").get("/api/run?run=made")
    columns = json.loads(answer.text, parse_constant=refuse)["stages"][0]["metrics"]["columns"]
    assert columns["loss"][-1] is None
    export_page(runs, tmp_path / "page.html")
    (data,) = re.findall(r'id="data">(.*?)</script>', (tmp_path / "page.html").read_text())
    json.loads(data, parse_constant=refuse)


@needs_duckdb
def test_a_query_counts_rollouts(folder: Path) -> None:
    rows = json.loads(shown(folder, "--json", "--sql", COUNT))["rows"]
    assert {(row["verdict"], row["n"]) for row in rows} == {("pass", 3), ("wrong", 9)}
    assert "wrong" in shown(folder, "--sql", COUNT)
    last = "select value from metrics where name = 'loss' order by step desc limit 1"
    (row,) = json.loads(shown(folder, "--json", "--sql", last))["rows"]
    assert row["value"] == pytest.approx(0.1 / 3)


@needs_duckdb
@pytest.mark.parametrize(
    "query",
    ["select * from read_csv('/etc/passwd')", "select * from '/etc/passwd'", "select * from folder",
     "copy metrics to 'x.csv'", "attach 'x.db'", "install httpfs", "load httpfs",
     "set enable_external_access = true", "select"],
)  # fmt: skip
def test_a_query_reaches_nothing_but_the_tables(folder: Path, query: str) -> None:
    with pytest.raises(SettingsError, match="--sql: "):
        shown(folder, "--sql", query)


@pytest.mark.skipif(bool(find_spec("duckdb")), reason="DuckDB is installed")
def test_without_duckdb_one_line_says_what_to_install(folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"pip install -e '\.\[sql\]'"):
        shown(folder, "--sql", COUNT)


LONG = "\u202e" + "x" * 10_000_000
"""What no person reads, and no terminal should get."""
STRANGERS: dict[str, Callable[[Path], object]] = {
    "an event": lambda run: add_line(run / "grpo/events.jsonl", step=3, event=LONG, text=LONG),
    "a metric's name": lambda run: add_line(run / "grpo/metrics.jsonl", step=4, **{LONG: 1.0}),
    "an evaluation": lambda run: add_name(run / "report.json", LONG),
}
"""By what a run folder of a stranger holds."""


def add_line(file: Path, **row: Any) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(row) + "\n")


def add_name(file: Path, name: str) -> None:
    report = json.loads(file.read_text())
    report["evaluations"][0] |= {"name": name, "tasks_spec": name}
    file.write_text(json.dumps(report))


@pytest.mark.parametrize("what", STRANGERS)
def test_a_run_with_lines_of_ten_megabytes_is_shown_in_a_page(tmp_path: Path, what: str) -> None:
    run = make_run(tmp_path / "runs" / "sent")
    STRANGERS[what](run)
    text = shown(run)
    assert len(text) < 1_000_000
    assert not {"\x1b", "\u202e"} & set(text)
    assert "entropy collapsed" in text or what == "an event"
    page = tmp_path / "page.html"
    CliRunner().invoke(app, ["view", str(run), "--export", str(page)], catch_exceptions=False)
    assert page.stat().st_size < 5_000_000
