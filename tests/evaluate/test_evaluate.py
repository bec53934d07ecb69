"""`assay eval`: samples written as they come, resumed after a kill, in a folder of their own."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from assay.config.evaluation import EvaluationRun
from assay.config.sections import EvaluateSettings, PolicySettings, TinySettings
from assay.errors import DataError, SettingsError
from assay.evaluate import EvaluationResult
from assay.evaluate import evaluate as evaluate_run
from assay.evaluate.protocol import Setup, name_of
from assay.evaluate.report import Evaluation, read_report
from assay.policy.tiny import make_tiny
from assay.progress import Progress
from assay.trackers.rollouts import VOCABULARY, turns
from tests.end_to_end.recipes import command
from tests.policies import TASKS

WAIT = 120.0
SETTINGS = EvaluateSettings(
    tasks="drills:test", limit=6, samples=2, max_tokens=16, axes=("format",)
)


@dataclass(frozen=True)
class Alone:
    """The result of an evaluation with one row."""

    evaluation: Evaluation
    setup: Setup
    folder: Path


def evaluate(
    model: PolicySettings, settings: EvaluateSettings, *, folder: Path | None = None,
    progress: Progress | None = None, seed: int = 0, environment: str = "single_turn",
) -> Alone:  # fmt: skip
    run = EvaluationRun(
        policy=model, evaluate=settings, seed=seed, environment={"name": environment}
    )
    done: EvaluationResult = evaluate_run(run, folder=folder, progress=progress)
    (evaluation,), (setup,) = done.evaluations, done.setups
    return Alone(evaluation, setup, done.folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PolicySettings:
    shape = TinySettings(vocabulary=300, width=64, layers=1, heads=2)
    made = make_tiny(tmp_path_factory.mktemp("models") / "tiny", TASKS, shape, seed=0)
    return PolicySettings(model=str(made), device="cpu")


@pytest.fixture(scope="module")
def whole(model: PolicySettings, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """An evaluation that nothing interrupted."""
    return evaluate(model, SETTINGS, folder=tmp_path_factory.mktemp("whole") / "out")


def numbers(evaluation: Evaluation) -> Evaluation:
    return replace(evaluation, seconds=0.0)


def rows_of(folder: Path) -> dict[tuple[str, int], str]:
    lines = (folder / "samples.jsonl").read_text().splitlines()
    rows = {(row["task_id"], row["sample"]): line for line in lines if (row := json.loads(line))}
    assert len(rows) == len(lines), "a sample stands in the file twice"
    return rows


def test_an_evaluation_that_was_cut_off_keeps_its_samples_and_ends_with_the_same_numbers(
    model: PolicySettings, whole: Alone, tmp_path: Path
) -> None:
    part = rows_of(whole.folder)
    report = json.loads((whole.folder / "report.json").read_text()) | {"evaluations": []}
    (tmp_path / "report.json").write_text(json.dumps(report))
    lines = list(part.values())[3:8]
    (tmp_path / "samples.jsonl").write_text("\n".join(lines) + '\n{"task_id": "half a li')
    stream = io.StringIO()
    resumed = evaluate(model, SETTINGS, folder=tmp_path, progress=Progress(stream))
    assert numbers(resumed.evaluation) == numbers(whole.evaluation)
    assert rows_of(tmp_path) == part
    assert (tmp_path / "samples.jsonl").read_text().splitlines()[: len(lines)] == lines
    assert "has 5 of 12 samples already" in stream.getvalue()


class Interrupted(Progress):
    """Ctrl-C, after three samples."""

    def advance(self, *values: Any) -> None:
        super().advance(*values)
        self.samples = getattr(self, "samples", 0) + 1
        if self.samples == 3:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_stops_an_evaluation_and_says_which_samples_are_kept(
    model: PolicySettings, whole: Alone, tmp_path: Path
) -> None:
    stream, folder = io.StringIO(), tmp_path / "alone" / "out"  # beside no finished evaluation
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            evaluate(model, SETTINGS, folder=folder, progress=Interrupted(stream))
    finally:
        signal.signal(signal.SIGINT, before)
    kept = len(rows_of(folder))
    assert kept >= 3
    assert f"stopped: {kept} of 12 samples are kept in {folder}" in stream.getvalue()
    resumed = evaluate(model, SETTINGS, folder=folder)
    assert numbers(resumed.evaluation) == numbers(whole.evaluation)


def rollouts_of(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    rows = turns([folder / "evaluations" / "step_000000.parquet"]).to_table().to_pylist()
    return {(row["task_id"], row["index"]): row for row in rows}


def test_the_rollouts_of_an_evaluation_are_kept_for_the_viewer(
    model: PolicySettings, whole: Alone, tmp_path: Path
) -> None:
    rows = rollouts_of(whole.folder)
    samples = {place: json.loads(line) for place, line in rows_of(whole.folder).items()}
    assert rows.keys() == samples.keys()
    for place, sample in samples.items():
        row = rows[place]
        assert (row["verdict"], row["length"]) == (sample["verdict"], sample["tokens"])
        assert row["completion"] == sample["reply"]
    assert {dict(row["tags"])["language"] for row in rows.values() if row["tags"]} == {"python"}
    assert (whole.folder / VOCABULARY).exists()
    report = json.loads((whole.folder / "report.json").read_text()) | {"evaluations": []}
    (tmp_path / "report.json").write_text(json.dumps(report))
    lines = (whole.folder / "samples.jsonl").read_text().splitlines()
    (tmp_path / "samples.jsonl").write_text("\n".join(lines[3:8]) + "\n")
    evaluate(model, SETTINGS, folder=tmp_path)
    known = ("task_id", "index", "completion", "verdict", "length", "ended", "reward")
    assert [[row[name] for name in known] for row in rollouts_of(tmp_path).values()] == [
        [row[name] for name in known] for row in rows.values()
    ]


def test_samples_that_are_in_the_file_are_not_made_again(
    model: PolicySettings, whole: Alone, tmp_path: Path
) -> None:
    lines = [
        json.dumps(json.loads(line) | {"verdict": "pass"}) + "\n"
        for line in list(rows_of(whole.folder).values())[:4]
    ]
    report = json.loads((whole.folder / "report.json").read_text()) | {"evaluations": []}
    (tmp_path / "report.json").write_text(json.dumps(report))
    (tmp_path / "samples.jsonl").write_text("".join(lines))
    assert evaluate(model, SETTINGS, folder=tmp_path).evaluation.verdicts["pass"] == 4


@pytest.mark.long
def test_a_killed_command_goes_on_when_it_runs_again(model: PolicySettings, tmp_path: Path) -> None:
    words = command(
        *("eval", "--model", model.model, "--tasks", "drills:test", "--limit", "30"),
        *("--max-tokens", "60"),
    )
    running = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + WAIT
    while not (lines := [line for file in tmp_path.rglob("samples.jsonl") for line in file.open()]):
        assert time.monotonic() < deadline
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait(WAIT)
    assert len(lines) < 240, "it was killed too late to show anything"
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert " of 240 samples already" in done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert len(rows_of(folder)) == 240
    assert read_report(folder)[0].samples == 8


def test_an_evaluation_that_is_complete_is_read_and_not_made_again(
    model: PolicySettings, whole: Alone
) -> None:
    before = (whole.folder / "samples.jsonl").stat()
    again = evaluate(model, SETTINGS, folder=whole.folder)
    assert again.evaluation == whole.evaluation, "its seconds too"
    assert (whole.folder / "samples.jsonl").stat() == before


@pytest.mark.long
def test_evaluations_that_differ_in_anything_have_folders_of_their_own(
    model: PolicySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = EvaluateSettings(tasks="drills:test", limit=1, samples=1, max_tokens=4)
    changes: list[dict[str, Any]] = [
        {}, {"samples": 2}, {"temperature": 0.5}, {"top_p": 0.9}, {"max_tokens": 5},
        {"limit": 2}, {"tasks": ("drills:longer",)},
    ]  # fmt: skip
    folders = [evaluate(model, small.model_copy(update=one)).folder for one in changes]
    folders.append(evaluate(model, small, seed=1).folder)
    folders.append(evaluate(model, small, environment="repair").folder)
    assert len(set(folders)) == len(changes) + 2
    assert "tiny-drills-test-n1-t1-seed0-" in str(folders[0])
    assert evaluate(model, small).folder == folders[0]


def test_a_folder_that_holds_another_evaluation_is_refused_and_left_alone(
    model: PolicySettings, whole: Alone
) -> None:
    before = (whole.folder / "report.json").read_bytes()
    warm = SETTINGS.model_copy(update={"temperature": 0.5})
    with pytest.raises(SettingsError, match=r"another evaluation \(other sampling\); choose"):
        evaluate(model, warm, folder=whole.folder)
    with pytest.raises(SettingsError, match=r"other seed"):
        evaluate(model, SETTINGS, folder=whole.folder, seed=3)
    assert (whole.folder / "report.json").read_bytes() == before


def test_a_folder_that_another_process_writes_to_is_refused(
    model: PolicySettings, tmp_path: Path
) -> None:
    import fcntl

    with (tmp_path / "samples.jsonl").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SettingsError, match="another evaluation writes"):
            evaluate(model, SETTINGS, folder=tmp_path)


def test_max_tokens_is_lowered_to_what_the_longest_prompt_leaves_and_said_so(
    model: PolicySettings, tmp_path: Path
) -> None:
    stream = io.StringIO()
    settings = SETTINGS.model_copy(update={"max_tokens": 512, "limit": 1, "samples": 1})
    done = evaluate(model, settings, folder=tmp_path / "out", progress=Progress(stream))
    room = done.setup["sampling"]["max_tokens"]
    assert 100 < room < 512
    assert stream.getvalue() == (
        f"max_tokens 512 -> {room}: the model's context is 512, and the longest prompt takes"
        f" {512 - room}\n"
    )


def test_a_prompt_that_fills_the_context_is_refused_by_name(
    model: PolicySettings, tmp_path: Path
) -> None:
    row = {"id": "long", "prompt": "many words " * 400, "entry_point": "f", "tests": ["assert f()"]}
    (tmp_path / "long.jsonl").write_text(json.dumps(row))
    settings = EvaluateSettings(tasks=str(tmp_path / "long.jsonl"))
    with pytest.raises(DataError, match=r"'long' has a prompt of \d+ tokens.* context of 512"):
        evaluate(model, settings, folder=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_report_says_how_the_evaluation_was_made(whole: Alone) -> None:
    setup = json.loads((whole.folder / "report.json").read_text())["setup"]
    assert setup["sampling"]["temperature"] == 1.0
    assert (setup["seed"], setup["task_count"], setup["samples"]) == (0, 6, 2)
    assert (setup["prompt"]["chat"], setup["stop"]) == (False, ["\n# f("])
    assert setup["prompt"]["messages"][0]["content"].startswith("# f(xs): ")
    assert "entry point" in setup["cut"]
    assert set(setup["versions"]) == {"assay", "torch", "transformers", "python"}
    assert len(setup["tasks_sha256"]) == 64


def test_an_axis_is_judged_for_every_sample_and_reported_beside_tests(
    whole: Alone,
) -> None:
    rows = [json.loads(line) for line in rows_of(whole.folder).values()]
    ended = [not row["truncated"] and bool(row["solution"]) for row in rows]
    assert [row["axes"] for row in rows] == [{"format": holds} for holds in ended]
    assert whole.evaluation.axes["format"][1] == pytest.approx(sum(ended) / len(rows))
    assert "| axis | pass@1 | pass@2 |" in (whole.folder / "report.md").read_text()


@pytest.mark.parametrize(("axis", "says"), [("formt", "did you mean"), ("reasoning", "url")])
def test_an_axis_that_is_no_reward_or_needs_parameters_is_refused_before_the_model_is_loaded(
    axis: str, says: str
) -> None:
    settings = SETTINGS.model_copy(update={"axes": (axis,)})
    with pytest.raises(SettingsError, match=says):
        evaluate(PolicySettings(model="no-such-model"), settings)


def test_evaluate_works_inside_a_running_event_loop(
    model: PolicySettings, whole: Alone, tmp_path: Path
) -> None:
    async def notebook_cell() -> Alone:
        return evaluate(model, SETTINGS, folder=tmp_path / "out")

    assert numbers(asyncio.run(notebook_cell()).evaluation) == numbers(whole.evaluation)


@pytest.mark.long
def test_the_command_says_what_it_does_while_it_runs(model: PolicySettings, tmp_path: Path) -> None:
    words = command("eval", "--model", model.model, "--tasks", "drills:test", "--limit", "1")
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    assert done.stderr.splitlines()[0].startswith(("starting", "loading"))


DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "evaluate.md"


def test_the_document_explains_every_field_of_the_files(whole: Alone) -> None:
    text = DOCUMENT.read_text()
    row = json.loads((whole.folder / "samples.jsonl").read_text().splitlines()[0])
    report = json.loads((whole.folder / "report.json").read_text())
    for name in (*row, *report, "setups", *report["setup"], *report["evaluations"][0]):
        assert f"`{name}`" in text, name


def test_the_notebook_lines_of_the_document_run_inside_an_event_loop(
    model: PolicySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    code = code.replace("runs/demo/grpo/checkpoints/step_000050", model.model)
    row = {"id": "f", "prompt": "f", "entry_point": "f", "tests": ["assert f(1) == 2"]}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_tasks.jsonl").write_text(json.dumps(row))

    async def notebook_cell() -> None:
        exec(code, {})

    asyncio.run(notebook_cell())
    assert capsys.readouterr().out.startswith("0.0 Interval(low=0.0, high=")


def test_the_working_directory_as_a_model_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sft" / "checkpoints" / "step_000008").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "sft" / "checkpoints" / "step_000008")
    assert name_of(".") == "sft/step_000008"
    assert name_of("org/model") == "org/model"
