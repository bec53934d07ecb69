"""An evaluation's settings: files of its own or of training, and short names for the flags."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay.config.evaluation import EvaluationRun
from assay.config.load_settings import load_evaluation
from assay.errors import SettingsError
from assay.evaluate.benchmark import benchmarks_of
from assay.evaluate.subject import models_of
from assay.policy.checkpoints import STATE

SHORT = {"model": "policy.model", "tasks": "evaluate.tasks", "samples": "evaluate.samples"}
TRAINING = """
name = "mine"
seed = 4
rewards.tests = { mode = "fraction" }
[policy]
model = "tiny"
lora = { rank = 4 }
[tasks]
train = "drills:train"
[evaluate]
tasks = ["drills:test", "drills:longer"]
samples = 3
[stages.rl]
steps = 3
algorithm.name = "grpo"
"""


def loaded(folder: Path, text: str, *words: str) -> EvaluationRun:
    (folder / "run.toml").write_text(text)
    return load_evaluation(folder / "run.toml", words, SHORT)


def test_a_settings_file_of_training_is_one_of_an_evaluation(tmp_path: Path) -> None:
    words = ["--samples", "5", "--evaluate.top_k=7", "--model", "org/model"]
    run = loaded(tmp_path, TRAINING, *words)
    assert (run.seed, run.evaluate.samples, run.evaluate.top_k) == (4, 5, 7)
    assert run.evaluate.tasks == ("drills:test", "drills:longer")
    (model,) = models_of(run)
    assert (model.run.policy.model, model.run.policy.lora) == ("org/model", None)


def test_a_base_and_no_file_at_all_work_too(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text('[evaluate]\ntasks = "drills:test"\n')
    run = loaded(tmp_path, 'base = "base.toml"\n[engine]\nkv_cache_tokens = 512\n')
    assert (run.evaluate.tasks, run.engine.kv_cache_tokens) == (("drills:test",), 512)
    assert load_evaluation(None, ["--tasks", "humaneval"], SHORT).evaluate.tasks == ("humaneval",)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--samples", "0"], "--samples 0: setting 'evaluate.samples' = 0 must be greater than 0"),
        (["--sampels", "2"], "--sampels 2: unknown setting 'sampels'; did you mean 'samples'?"),
        (["--tasks", "drils"], "--tasks drils: unknown task set 'drils'; did you mean 'drills'?"),
        (["--optimizer.lr", "1"], "--optimizer.lr 1: unknown setting 'optimizer'"),
        (["--evaluate", "1"], "--evaluate 1: setting 'evaluate' = 1 is no table"),
    ],
)
def test_a_mistake_is_one_line_with_the_words_that_were_typed(
    tmp_path: Path, words: list[str], says: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        loaded(tmp_path, TRAINING, *words)
    assert str(raised.value).startswith(says)


def test_tasks_that_nobody_names_are_missing() -> None:
    with pytest.raises(SettingsError, match=r"setting 'evaluate\.tasks' is missing"):
        load_evaluation(None, ["--model", "m"], SHORT)


def test_a_run_stands_for_its_newest_checkpoint_or_for_all_of_them_in_order(
    tmp_path: Path,
) -> None:
    for time, (stage, step) in enumerate((("sft", 8), ("rl", 2), ("rl", 10))):
        checkpoint = tmp_path / stage / "checkpoints" / f"step_{step:06d}"
        (checkpoint / "assay").mkdir(parents=True)
        for name in (*STATE, "config.json", "tokenizer.json"):
            (checkpoint / name).write_text("{}")
        os.utime(checkpoint, (time, time))
    names = {
        (model, every): [
            str(Path(one.source.name).relative_to(tmp_path))
            for one in models_of(
                EvaluationRun.model_validate(
                    {"policy": {"model": str(tmp_path / model)}, "every_checkpoint": every,
                     "evaluate": {"tasks": "drills"}}
                )
            )
        ]
        for model in ("", "sft", "rl/checkpoints/step_000002")
        for every in (False, True)
        if not (every and "step" in model)
    }  # fmt: skip
    sft, two, ten = (
        "sft/checkpoints/step_000008", "rl/checkpoints/step_000002", "rl/checkpoints/step_000010"
    )  # fmt: skip
    assert names["", False] == [ten]
    assert names["", True] == [sft, two, ten]
    assert names["sft", False] == names["sft", True] == [sft]
    assert names["rl/checkpoints/step_000002", False] == [two]


@pytest.mark.parametrize(
    ("model", "every", "says"),
    [("tiny", False, "is made by a training run"), ("org/model", True, "no folder of a run")],
)
def test_a_model_that_only_training_makes_and_a_run_without_checkpoints_are_refused(
    model: str, every: bool, says: str
) -> None:
    settings = {"policy": {"model": model}, "every_checkpoint": every, "evaluate.tasks": "drills"}
    settings["evaluate"] = {"tasks": settings.pop("evaluate.tasks")}
    with pytest.raises(SettingsError, match=says):
        models_of(EvaluationRun.model_validate(settings))


def test_greedy_decoding_is_a_row_behind_each_sampled_one() -> None:
    settings = EvaluationRun.model_validate(
        {"evaluate": {"tasks": ["a", "b"], "greedy": True, "top_p": 0.9, "samples": 4}}
    ).evaluate
    rows = benchmarks_of(settings)
    assert [(one.tasks, one.samples, one.temperature, one.top_p) for one in rows] == [
        (("a",), 4, 1.0, 0.9), (("a",), 1, 0.0, 1.0), (("b",), 4, 1.0, 0.9), (("b",), 1, 0.0, 1.0)
    ]  # fmt: skip


def test_training_refuses_an_engine_without_tokens_in_one_line(tmp_path: Path) -> None:
    from assay.config.load_settings import load_plan

    (tmp_path / "run.toml").write_text(TRAINING)
    words = ["--engine.name", "openai", "--engine.servers", "http://localhost/v1"]
    with pytest.raises(SettingsError, match=r"gives no token ids .* so it can only be evaluated"):
        load_plan(tmp_path / "run.toml", words)
