"""Each file of a run, damaged in each way: it is named in a line, and all else is shown."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from starlette.testclient import TestClient
from typer.testing import CliRunner

from assay.cli import app, explain
from assay.trackers.rollouts import VOCABULARY
from assay.viewer.folders import RunsFolder
from assay.viewer.page_server import build
from tests.viewer.made import make_run

CONFIG = """name = "{name}"
folder = ".."
[policy]
model = "tiny"
[algorithm]
name = "grpo"
"""
REPORT, CONFIG_FILE = "report.json", "grpo/config.toml"
METRICS, EVENTS = "grpo/metrics.jsonl", "grpo/events.jsonl"
ROLLOUTS, EVALUATED = "grpo/rollouts/step_000002.parquet", "grpo/evaluations/step_000003.parquet"
TOKENS = f"grpo/{VOCABULARY}"
JSON, LINES = (REPORT,), (METRICS, EVENTS)
PARQUET = (ROLLOUTS, EVALUATED, TOKENS)
ALL = (REPORT, CONFIG_FILE, *LINES, *PARQUET)


def write(data: bytes) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(data)


def cut(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])


def cut_first_line(file: Path) -> None:
    file.write_bytes(file.read_bytes()[9:])


def cut_end(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-2])


def lose_a_block(file: Path) -> None:
    whole = file.read_bytes()
    half = len(whole) // 2
    file.write_bytes(whole[:4] + bytes(half) + whole[4 + half :])


def lose_pages(file: Path) -> None:
    """The beginning, which holds data; the end says where it is."""
    whole = file.read_bytes()
    file.write_bytes(whole[:4] + b"\xff" * 200 + whole[204:])


def make_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def make_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def dangle(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.with_name("nothing"))


def circle(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


def forbid(file: Path) -> None:
    file.chmod(0)


def table(**columns: list[Any]) -> Callable[[Path], None]:
    return lambda file: parquet.write_table(pa.table(columns), file)


def changed(name: str, values: Any) -> Callable[[Path], None]:
    """A column with other values."""

    def change(file: Path) -> None:
        rows = parquet.read_table(file)
        column = pa.array([values] * len(rows))
        parquet.write_table(rows.set_column(rows.column_names.index(name), name, column), file)

    return change


def without(name: str) -> Callable[[Path], None]:
    return lambda file: parquet.write_table(parquet.read_table(file).drop_columns([name]), file)


def evaluation(**fields: Any) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        report = json.loads(file.read_text())
        report["evaluations"][0] |= fields
        file.write_text(json.dumps(report))

    return change


def report(**fields: Any) -> Callable[[Path], object]:
    return lambda file: file.write_text(json.dumps(json.loads(file.read_text()) | fields))


EVERYWHERE: dict[str, Callable[[Path], object]] = {
    "binary": write(bytes(range(256)) * 4),
    "no bytes but zeros": write(bytes(64) + b"\n"),
    "UTF-16": write('{"step": 1}\n'.encode("utf-16")),
    "Latin-1": write('{"step": 1, "text": "é"}\n'.encode("latin-1")),
    "a folder": make_folder,
    "a pipe": make_pipe,
    "a link to nothing": dangle,
    "a link to itself": circle,
    "no permission": forbid,
    "deeply nested": write(b"[" * 100_000 + b"]" * 100_000 + b"\n"),
    "a huge line": write(b"x" * 3_000_000 + b"\n"),
}
IN_JSON: dict[str, Callable[[Path], object]] = {
    "a text": write(b'"text"\n'),
    "a number": write(b"1\n"),
    "a list": write(b"[1, 2]\n"),
    "null": write(b"null\n"),
    "another table": write(b'{"a": 1}\n'),
    "a long number": write(b"9" * 5000 + b"\n"),
    "deeply nested field": write(b'{"step": 1, "text": "a", "time": ' + b"[" * 990 + b"]" * 990
                                 + b"}\n"),
}  # fmt: skip
IN_LINES: dict[str, Callable[[Path], object]] = {
    "half of the first line": cut_first_line,
    "an empty line": write(b"\n\n"),
    "a step that is a text": write(b'{"step": "1", "text": "a"}\n'),
    "a step that is true": write(b'{"step": true, "text": "a"}\n'),
    "a step that is NaN": write(b'{"step": NaN, "text": "a"}\n'),
    "a step below 0": write(b'{"step": -1, "text": "a"}\n'),
    "a huge step": write(b'{"step": 1' + b"0" * 400 + b', "text": "a"}\n'),
    "no step": write(b'{"text": "a"}\n'),
    "a field that is a table": write(b'{"step": 1, "text": {"a": 1}, "loss": {"a": 1}}\n'),
    "a list and a row": write(b'{"step": 1, "text": "a"}\n[]\n'),
}
IN_REPORTS: dict[str, Callable[[Path], object]] = {
    "empty": write(b""),
    "cut": cut,
    "evaluations that are a table": write(b'{"evaluations": {"a": 1}}'),
    "evaluations without fields": write(b'{"evaluations": [{"name": "a"}]}'),
    "a name that is a number": evaluation(name=1),
    "no pass@1": evaluation(pass_at={"2": 0.5}),
    "no rates": evaluation(pass_at={}),
    "a rate that is NaN": evaluation(pass_at={"1": float("nan")}),
    "an infinite length": evaluation(mean_length=float("inf")),
    "a task without completions": evaluation(per_task=[{"id": "a", "passed": 0, "samples": 0}]),
    "no tasks": evaluation(per_task=[]),
    "an interval that is a list": evaluation(interval=[0, 1]),
    "a setup that is a list": report(setup=[1]),
    "setups that are a text": report(setups="a"),
    "a setup of setups that is a number": report(setups={"grpo, set:test": 1}),
    "a model of a setup that is a text": report(setup={"model": "a"}),
}
IN_SETTINGS: dict[str, Callable[[Path], object]] = {
    "empty": write(b""),
    "cut": cut,
    "a list": write(b"[1, 2]\n"),
}
IN_PARQUET: dict[str, Callable[[Path], object]] = {
    "empty": write(b""),
    "short": write(b"PAR1"),
    "cut": cut,
    "no end": cut_end,
    "a lost block": lose_a_block,
    "lost pages": lose_pages,
    "other columns": table(a=[1, 2]),
    "no columns": table(),
}
IN_ROLLOUTS: dict[str, Callable[[Path], object]] = {
    "no task_id": without("task_id"),
    "no step": without("step"),
    "task_id that is null": changed("task_id", None),
    "group that is null": changed("group", None),
    "step that is a text": changed("step", "x"),
    "reward that is a text": changed("reward", "x"),
    "verdict that is a list": changed("verdict", ["x"]),
    "task_id of bytes that are no text": changed("task_id", b"\xff\xfe"),
    "text of bytes that are no text": changed("completion", b"caf\xe9"),
}
DAMAGE = [
    (file, name, damage)
    for files, kinds in (
        (ALL, EVERYWHERE), ((*JSON, *LINES), IN_JSON), (LINES, IN_LINES), (JSON, IN_REPORTS),
        ((CONFIG_FILE,), IN_SETTINGS), (PARQUET, IN_PARQUET),
        ((ROLLOUTS, EVALUATED), IN_ROLLOUTS),
    )
    for file, (name, damage) in product(files, kinds.items())
    if not (name == "no permission" and os.geteuid() == 0)
]  # fmt: skip
QUICK = "binary"
"""The kind of damage that every run of the tests tries on each file: all of them take minutes."""
SEEN_LATER = ("lost pages", "other columns", "no columns", "a lost block", *IN_ROLLOUTS)
"""Damage inside of Parquet files, which `assay show` does not read."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    for name in ("broken", "other"):
        make_run(folder / name)
        (folder / name / CONFIG_FILE).write_text(CONFIG.format(name=name))
    return folder


@pytest.fixture
def runs(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "runs"))


def run_command(*words: str) -> str:
    """What a command prints; fails where it ends with more than a line."""
    done = CliRunner().invoke(app, words, catch_exceptions=True)
    if done.exception and not isinstance(done.exception, SystemExit):
        assert isinstance(done.exception, Exception)
        line, _ = explain(done.exception)
        assert line, f"a traceback: {done.exception!r}"
        return line
    assert done.exit_code == 0, done.output
    return done.stdout


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def lines_on(file: str, lines: list[str]) -> list[str]:
    return [line for line in lines if f"broken/{file}" in line]


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        pytest.param(
            file, damage, id=f"{file}: {name}", marks=[] if name == QUICK else [pytest.mark.long]
        )
        for file, name, damage in DAMAGE
    ],
)
def test_a_damaged_file_is_named_and_all_else_is_shown(
    runs: Path, file: str, damage: Callable[[Path], object], request: pytest.FixtureRequest
) -> None:
    damage(runs / "broken" / file)
    later = request.node.callspec.id.partition(": ")[2] in SEEN_LATER

    states = json.loads(run_command("show", str(runs), "--json"), parse_constant=refuse)["runs"]
    assert {state["name"] for state in states} == {"broken", "other"}
    state = {one["name"]: one for one in states}
    assert len(state["other"]["evaluations"]) == 1
    assert not state["other"]["damage"]
    assert later or len(lines_on(file, state["broken"]["damage"])) == 1
    text = run_command("show", str(runs))
    assert "other" in text
    assert later or f"broken/{file}" in text.replace("\n", "")

    client = TestClient(build(RunsFolder(runs)), base_url="http://127.0.0.1:8642")
    ask_all(client, file)

    held = run_command("view", str(runs), "--export", str(runs.parent / "page.html"))
    assert len(lines_on(file, held.splitlines())) == 1
    (data,) = re.findall(r'id="data">(.*?)</script>', (runs.parent / "page.html").read_text())
    page = json.loads(data, parse_constant=refuse)
    assert page["run"].keys() == {"broken", "other"}
    assert str(runs) not in data, "a page that is sent tells nothing of this machine"

    compared = run_command("compare", str(runs))
    assert "other" in compared
    if file in (REPORT, CONFIG_FILE):
        assert len(lines_on(file, compared.splitlines())) == 1


def ask_all(client: TestClient, file: str | None) -> None:
    """Asks what the page asks, of both runs; the damaged file, if one is, is named by the end."""

    def ask(name: str, *statuses: int, **asked: str) -> Any:
        answer = client.get(f"/api/{name}", params=asked)
        assert answer.status_code in (200, *statuses), answer.text
        return json.loads(answer.text, parse_constant=refuse)

    ask("runs")
    ask("curves", metric="loss")
    for run in ("other", "broken"):
        details = ask("run", run=run)
        for at in range(len(details["evaluations"])):
            ask("evaluation", run=run, at=str(at), with_run="other", with_at="0")
        for stage, kind in product(details["stages"], ("rollouts", "evaluations")):
            place = {"run": run, "stage": stage["name"], "kind": kind}
            rows = ask("rollouts", **place)["rows"]
            assert run == "broken" or len(rows) in (9, 4)
            ask("suspects", **place)
            ask("tasks", **place)
            for row in rows:
                position = {key: str(row[key]) for key in ("step", "group", "index")}
                ask("rollout", 500 if run == "broken" else 200, **place, **position)
    damage = ask("run", run="broken")["damage"]
    assert len(lines_on(file, damage) if file else [1, *damage]) == 1
    assert not ask("run", run="other")["damage"]


def test_a_file_that_is_whole_again_is_shown(runs: Path) -> None:
    folder = RunsFolder(runs)
    client = TestClient(build(folder), base_url="http://127.0.0.1:8642")
    place = {"run": "broken", "stage": "grpo", "kind": "rollouts"}
    for file, damage in ((METRICS, write(b"[]\n")), (ROLLOUTS, lose_pages), (REPORT, dangle)):
        path = runs / "broken" / file
        content = path.read_bytes()
        damage(path)
        client.get("/api/rollouts", params=place)
        assert client.get("/api/run", params=place).json()["damage"]
        path.unlink()
        path.write_bytes(content)
        assert client.get("/api/rollouts", params=place).json()["total"] == 9
        assert not client.get("/api/run", params=place).json()["damage"]


ORDERS: dict[str, bytes] = {
    "no line yet": b"",
    "half a line": b'{"step": 1, "lo',
    "steps out of order": b'{"step": 3, "loss": 1}\n{"step": 1}\n{"step": 3, "loss": 5}\n',
}


@pytest.mark.long
@pytest.mark.parametrize("name", ORDERS)
def test_metrics_that_a_running_or_joined_run_may_have_are_no_damage(runs: Path, name: str) -> None:
    (runs / "broken" / METRICS).write_bytes(ORDERS[name])
    states = json.loads(run_command("show", str(runs), "--json"), parse_constant=refuse)["runs"]
    (state,) = (state for state in states if state["name"] == "broken")
    assert not state["damage"]
    (stage,) = state["stages"]
    assert stage["step"] == (3 if name == "steps out of order" else 0)
    assert stage["metrics"].get("loss") == (5 if name == "steps out of order" else None)
    client = TestClient(build(RunsFolder(runs)), base_url="http://127.0.0.1:8642")
    ask_all(client, None)
    assert "2 runs" in run_command("view", str(runs), "--export", str(runs.parent / "page.html"))


@pytest.mark.long
def test_runs_of_one_name_in_two_folders_and_a_name_of_two_lines_are_all_shown(runs: Path) -> None:
    shutil.copytree(runs / "other", runs / "more/other")
    (runs / "broken").rename(runs / "two\nlines")
    names = {"other", "more/other", "two\nlines"}
    states = json.loads(run_command("show", str(runs), "--json"), parse_constant=refuse)["runs"]
    assert {state["name"] for state in states} == names
    assert "more/other" in run_command("show", str(runs))
    assert "other" in run_command("compare", str(runs))
    assert "3 runs" in run_command("view", str(runs), "--export", str(runs.parent / "page.html"))
    (data,) = re.findall(r'id="data">(.*?)</script>', (runs.parent / "page.html").read_text())
    assert json.loads(data)["run"].keys() == names


@pytest.fixture
def as_nobody(whole: Path) -> Iterator[Path]:
    """Folders of runs that an ordinary user may read, in a process of that user."""
    if os.geteuid():
        pytest.skip("needs root to become another user")
    with tempfile.TemporaryDirectory() as name:
        runs = Path(shutil.copytree(whole, Path(name) / "runs"))
        Path(name).chmod(0o777)
        runs.chmod(0o755)
        yield runs
        os.seteuid(0)


CLOSED = ("broken", "broken/grpo", "broken/grpo/rollouts", "broken/grpo/evaluations")


@pytest.mark.long
@pytest.mark.parametrize("place", CLOSED)
def test_a_folder_that_may_not_be_read_hides_no_other_run(as_nobody: Path, place: str) -> None:
    (as_nobody / place).chmod(0)
    os.seteuid(65_534)
    states = json.loads(run_command("show", str(as_nobody), "--json"))["runs"]
    assert "other" in {state["name"] for state in states}
    for command in ("show", "compare"):
        assert "other" in run_command(command, str(as_nobody))
    page = as_nobody.parent / "page.html"
    assert "run" in run_command("view", str(as_nobody), "--export", str(page))
    assert '"other"' in page.read_text()
    client = TestClient(build(RunsFolder(as_nobody)), base_url="http://127.0.0.1:8642")
    assert client.get("/api/runs").status_code == 200


def test_the_folder_of_runs_itself_that_may_not_be_read_is_named(as_nobody: Path) -> None:
    as_nobody.chmod(0)
    os.seteuid(65_534)
    for command in (["show"], ["view", "--export", "page.html"], ["compare"]):
        line = run_command(command[0], str(as_nobody), *command[1:])
        assert str(as_nobody) in line
        assert "\n" not in line
