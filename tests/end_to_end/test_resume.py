"""Save, kill, resume: the run goes on with the same numbers to the bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.end_to_end.recipes import TINY, assay, command, write

EVALUATE = '[stages.grpo.evaluate]\ntasks = "drills:test"\nlimit = 2\nsamples = 2\nmax_tokens = 16\nevery = 1\n'
EVERY_STEP = TINY.replace("[judge]", "[save]\nevery = 1\nkeep = 2\n[judge]").replace(
    'algorithm = { name = "grpo", kl = 0.01 }', 'algorithm = { name = "grpo", kl = 0.01, epochs = 2 }'
)
SETTINGS = {
    "full": EVERY_STEP + EVALUATE,
    "lora": EVERY_STEP + EVALUATE + "[policy.lora]\nrank = 4\ndropout = 0.1\n",
}


def numbers(folder: Path, stage: str) -> list[dict[str, float]]:
    """The numbers of every step that do not depend on the clock."""
    lines = (folder / "runs" / "small" / stage / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if not key.startswith("time/")} for line in lines]


def weights(folder: Path, stage: str) -> bytes:
    """Of the newest checkpoint, the adapter's or the model's."""
    newest = max((folder / "runs" / "small" / stage / "checkpoints").iterdir())
    (file,) = newest.glob("*model.safetensors")
    return file.read_bytes()


def kill_when(folder: Path, present: Path, sign: signal.Signals) -> int:
    """Start training in `folder`, send `sign` as soon as `present` exists; the exit code."""
    running = subprocess.Popen(
        command("train", "small.toml"), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ
    )
    deadline = time.monotonic() + 120
    while not (folder / present).exists() and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    running.send_signal(sign)
    return running.wait(timeout=120)


@pytest.fixture(scope="module", params=SETTINGS)
def undisturbed(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    write(folder, SETTINGS[request.param])
    done = assay("train", "small.toml", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_run_killed_twice_ends_with_the_same_numbers_and_weights_to_the_bit(
    tmp_path: Path, undisturbed: Path
) -> None:
    write(tmp_path, (undisturbed / "small.toml").read_text())
    stages = Path("runs/small")
    assert kill_when(tmp_path, stages / "sft/checkpoints/step_000002", signal.SIGKILL) == -signal.SIGKILL
    assert kill_when(tmp_path, stages / "grpo/checkpoints/step_000001", signal.SIGKILL) == -signal.SIGKILL
    done = assay("train", "small.toml", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for stage in ("sft", "grpo"):
        assert numbers(tmp_path, stage) == numbers(undisturbed, stage)
        assert weights(tmp_path, stage) == weights(undisturbed, stage)


def test_a_run_asked_to_stop_finishes_its_step_saves_and_exits_well(tmp_path: Path, undisturbed: Path) -> None:
    write(tmp_path, (undisturbed / "small.toml").read_text().replace("[save]\nevery = 1", "[save]\nevery = 0"))
    assert kill_when(tmp_path, Path("runs/small/grpo/rollouts/step_000001.parquet"), signal.SIGTERM) == 0
    saved = sorted((tmp_path / "runs/small/grpo/checkpoints").iterdir())
    assert [path.name for path in saved] in (["step_000001"], ["step_000002"])
    assert assay("train", "small.toml", folder=tmp_path).returncode == 0
    assert numbers(tmp_path, "grpo") == numbers(undisturbed, "grpo")
    assert weights(tmp_path, "grpo") == weights(undisturbed, "grpo")


def test_a_finished_run_is_not_run_again(undisturbed: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*.safetensors")}
    assert assay("train", "small.toml", folder=undisturbed).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*.safetensors")} == before


def test_the_run_folder_holds_settings_numbers_rollouts_and_models_that_transformers_loads(undisturbed: Path) -> None:
    from pyarrow import parquet
    from transformers import AutoModelForCausalLM, AutoTokenizer

    stage = undisturbed / "runs/small/grpo"
    assert 'name = "grpo"' in (stage / "config.toml").read_text()
    assert [row["step"] for row in numbers(undisturbed, "grpo") if "loss" in row] == [1, 2, 3]
    assert [row["step"] for row in numbers(undisturbed, "grpo") if "evaluate/pass@1" in row] == [1, 2, 3]
    rows = parquet.read_table(stage / "rollouts/step_000003.parquet").to_pylist()
    assert len(rows) == 16
    assert {row["verdict"] for row in rows} <= {"pass", "wrong", "error", "compile", "no_code", "timeout", "memory"}
    measured = parquet.read_table(stage / "evaluations/step_000003.parquet").to_pylist()
    assert [(row["group"], row["index"]) for row in measured] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    newest = sorted((stage / "checkpoints").iterdir())
    assert [path.name for path in newest] == ["step_000002", "step_000003"]
    model = AutoModelForCausalLM.from_pretrained(newest[-1])
    assert model.config.architectures == ["LlamaForCausalLM"]
    assert AutoTokenizer.from_pretrained(newest[-1]).eos_token_id == model.config.eos_token_id


def test_an_evaluation_that_was_due_and_is_missing_is_made_up_for(undisturbed: Path) -> None:
    run = undisturbed / "runs/small"
    (made,) = json.loads((run / "report.json").read_text())["evaluations"]
    (run / "report.json").unlink()
    (run / "grpo/evaluated.json").unlink()
    assert assay("train", "small.toml", folder=undisturbed).returncode == 0
    (again,) = json.loads((run / "report.json").read_text())["evaluations"]
    assert again | {"seconds": 0} == made | {"seconds": 0}


def test_a_stage_without_rollouts_stops_as_well_when_asked_and_the_next_is_not_begun(tmp_path: Path) -> None:
    write(tmp_path, EVERY_STEP.replace("[stages.sft]\nsteps = 4", "[stages.sft]\nsteps = 4000"))
    assert kill_when(tmp_path, Path("runs/small/sft/checkpoints/step_000002"), signal.SIGTERM) == 0
    assert sorted((tmp_path / "runs/small/sft/checkpoints").iterdir())[-1].name < "step_000100"
    assert not (tmp_path / "runs/small/grpo").exists()
