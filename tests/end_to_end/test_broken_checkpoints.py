"""Newest checkpoints that are broken in six ways: each is named in one line, and the one before is
used; without one, a line says what to do.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from assay.config.evaluation import EvaluationRun
from assay.config.sections import EvaluateSettings, PolicySettings
from assay.errors import DataError, ModelError
from assay.evaluate.subject import EvaluatedModel, models_of, subject_of
from assay.policy.checkpoints import FILES, best_of, require_whole
from assay.progress import Progress
from assay.train.export import export
from assay.train.stages import PlanOutcome
from tests.end_to_end.nursery import finish
from tests.train.test_stages import PLAN, run

SETTINGS = PLAN.replace("steps = 1", "steps = 3\nsave.every = 1").replace(
    "evaluate =", "# evaluate ="
)
STAGE = Path("runs/run/first")
TWO, THREE = (STAGE / f"checkpoints/step_00000{step}" for step in (2, 3))


def half(name: str) -> Callable[[Path], None]:
    def cut(checkpoint: Path) -> None:
        file = checkpoint / name
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    return cut


def emptied(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()


def without_tokenizer(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").unlink()


def with_nan(name: str) -> Callable[[Path], None]:
    def change(checkpoint: Path) -> None:
        weights = load_file(checkpoint / name)
        next(one for one in weights.values() if one.ndim).view(-1)[-1] = torch.nan
        save_file(weights, checkpoint / name, metadata={"format": "pt"})

    return change


def replaced(text: str, other: str) -> Callable[[Path], object]:
    def change(file: Path) -> None:
        before = file.read_text()
        assert text in before
        file.write_text(before.replace(text, other))

    return change


KINDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "cut-off model": (half("model.safetensors"), "model.safetensors is cut off after"),
    "cut-off optimizer": (half("assay/optimizer.safetensors"), "assay/optimizer.safetensors is c"),
    "cut-off position": (half("assay/source.json"), "assay/source.json is cut off after"),
    "empty folder": (emptied, "assay/learner.safetensors is missing"),
    "missing file": (without_tokenizer, "tokenizer.json is missing"),
    "a weight that is NaN": (with_nan("model.safetensors"), "in model.safetensors is not finite"),
}


def go(folder: Path, *words: str) -> PlanOutcome:
    """Run the plan in a folder; copies of it hold the same run."""
    with chdir(folder):
        return run(Path(), SETTINGS, *words)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    go(folder)
    return folder


@pytest.fixture(params=KINDS)
def broken(request: pytest.FixtureRequest, trained: Path, tmp_path: Path) -> tuple[Path, str]:
    """A copy of the run whose newest checkpoint is broken, and what is to be said of it."""
    folder = shutil.copytree(trained, tmp_path / "copy")
    spoil, why = KINDS[request.param]
    spoil(folder / THREE)
    return folder, why


def evaluated(model: Path) -> EvaluatedModel:
    """The evaluation of the checkpoint that stands for a run or a stage."""
    (chosen,) = models_of(
        EvaluationRun(
            policy=PolicySettings(model=str(model), device="cpu"),
            evaluate=EvaluateSettings(tasks=("drills:test",)),
        )
    )
    return chosen


def only_warning(caplog: pytest.LogCaptureFixture) -> str:
    (line,) = [one.getMessage() for one in caplog.records if "is broken" in one.getMessage()]
    caplog.clear()
    return line


def test_a_run_goes_on_from_the_checkpoint_before_and_ends_with_the_same_weights(
    broken: tuple[Path, str], trained: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, why = broken
    assert go(folder).model == THREE
    line = only_warning(caplog)
    assert f"checkpoint {THREE} is broken: " in line
    assert why in line
    assert line.endswith(f"; {TWO} is used in its place")
    for name in ("model.safetensors", "assay/optimizer.safetensors"):
        assert (folder / THREE / name).read_bytes() == (trained / THREE / name).read_bytes()
    assert (folder / f"{THREE}.broken").is_dir(), "nothing is deleted"
    steps = [json.loads(line)["step"] for line in (folder / STAGE / "metrics.jsonl").open()]
    assert steps == [1, 2, 3]


@pytest.mark.parametrize("of", [STAGE.parent, STAGE])
def test_eval_and_export_of_a_run_or_a_stage_use_the_one_before_too(
    broken: tuple[Path, str], of: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, why = broken
    assert evaluated(folder / of).source.name == str(folder / TWO)
    assert why in only_warning(caplog)
    assert export(folder / of, folder / "out").checkpoint == folder / TWO
    assert why in only_warning(caplog)


def test_settings_of_a_stage_that_cannot_be_read_are_named_in_one_line(
    trained: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(trained, tmp_path / "copy")
    (folder / STAGE / "config.toml").write_text("name = [")
    with pytest.raises(DataError, match=r"first/config\.toml cannot be read: "):
        export(folder / STAGE, folder / "out")
    for words in ((), ("--policy.model", str(trained / STAGE))):
        with pytest.raises(DataError, match=r"first/config\.toml cannot be read: "):
            go(folder, *words)


def test_without_one_before_a_line_says_what_to_do_and_nothing_is_moved(
    broken: tuple[Path, str],
) -> None:
    folder, why = broken
    shutil.rmtree(folder / TWO)
    for use in (
        lambda: go(folder),
        lambda: evaluated(folder / STAGE),
        lambda: export(folder / STAGE, folder / "out"),
    ):
        with pytest.raises(
            DataError, match=r"no earlier one is whole: copy it back .* or delete"
        ) as caught:
            use()
        assert why in str(caught.value)
        assert "\n" not in str(caught.value)
    assert (folder / THREE).is_dir()


@pytest.mark.parametrize("kind", ["cut-off model", "a weight that is NaN"])
def test_a_broken_model_that_is_named_itself_is_refused_in_one_line(
    trained: Path, tmp_path: Path, kind: str
) -> None:
    folder = shutil.copytree(trained, tmp_path / "copy")
    KINDS[kind][0](folder / THREE)
    for use in (
        lambda: subject_of(evaluated(folder / THREE), Progress()),
        lambda: export(folder / THREE, folder / "o"),
    ):
        with pytest.raises(ModelError, match="step_000003") as caught:
            use()
        assert "\n" not in str(caught.value)


def test_a_moment_of_the_optimizer_that_is_nan_is_found_when_it_is_loaded(
    trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = shutil.copytree(trained, tmp_path / "copy")
    with_nan("assay/optimizer.safetensors")(folder / THREE)
    go(folder)
    assert only_warning(caplog).endswith(f"is not finite; {TWO} is used in its place")


def test_the_checkpoint_that_is_used_is_not_pruned_in_favour_of_the_broken_one(
    trained: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(trained, tmp_path / "copy")
    emptied(folder / THREE)
    assert go(folder, "--save.keep", "1", "--steps", "2").model == TWO


@pytest.mark.long
def test_the_command_line_says_it_in_one_line_and_ends_with_exit_code_2(
    trained: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(trained, tmp_path / "copy")
    emptied(folder / THREE)
    code, said = finish(folder, "export", str(STAGE), "out")
    assert code == 0, said
    assert f"{TWO} is used in its place" in said
    shutil.rmtree(folder / TWO)
    code, said = finish(folder, "train", "plan.toml")
    assert code == 2, said
    assert said.splitlines()[-1].startswith(f"assay: checkpoint {THREE} is broken: ")


REPORT = """{"evaluations": [{"name": "first", "tasks_spec": "set:test", "tasks": 1, "samples": 1,
"temperature": 1.0, "pass_at": {"1": 1.0}, "interval": {"low": 0.2, "high": 1.0},
"mean_length": 8.0, "truncated": 0.0, "verdicts": {"pass": 1}, "dropped": 0, "unjudged": 0,
"seconds": 1.0,
"per_task": [{"id": "a", "passed": 1, "samples": 1}], "axes": {}, "forgeable": 0, "groups": {},
"lost_by_task": {}, "failure": "", "bounds": null}]}"""
ODD: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a step that is NaN": ("evaluated.json", lambda file: file.write_text('{"step": NaN}')),
    "a pipe": ("evaluated.json", os.mkfifo),
    "a list": ("evaluated.json", lambda file: file.write_text("[]")),
    "no such dtype": ("config.toml", replaced('dtype = "float32"', 'dtype = "float8"')),
    "no chat": ("config.toml", replaced('chat = "auto"', "")),
    "no tasks": ("config.toml", replaced("[tasks]", "[other]")),
    "tasks that are a number": ("config.toml", replaced("train = [", "train = 1\nother = [")),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_of_a_stage_is_named_by_export_in_one_line(
    trained: Path, tmp_path: Path, name: str
) -> None:
    folder = Path(shutil.copytree(trained, tmp_path / "copy"))
    (folder / "runs/run/report.json").write_text(REPORT)
    file, damage = ODD[name]
    path = folder / STAGE / file
    if file == "evaluated.json":
        path.unlink(missing_ok=True)
    damage(path)
    with pytest.raises(DataError, match=file) as why:
        export(folder / STAGE, tmp_path / "exported")
    assert "\n" not in str(why.value)
    assert not (tmp_path / "exported").exists()


def test_the_best_checkpoint_of_an_odd_file_is_refused_in_one_line(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints/step_000002"
    checkpoint.mkdir(parents=True)
    for text in ('{"step": NaN}', '{"step": [2]}', "[]", '{"a": 1}', ""):
        (tmp_path / "best.json").write_text(text)
        with pytest.raises(DataError, match=r"best\.json cannot be read: "):
            best_of(tmp_path)
    (tmp_path / "best.json").write_text('{"step": 2}')
    assert best_of(tmp_path) == checkpoint


@pytest.mark.parametrize("sizes", ["[1]", '{"model.safetensors": "1"}', '{"config.json": NaN}'])
def test_a_list_of_files_that_is_odd_is_a_broken_checkpoint(
    trained: Path, tmp_path: Path, sizes: str
) -> None:
    checkpoint = Path(shutil.copytree(trained / THREE, tmp_path / "step_000003"))
    require_whole(checkpoint)
    (checkpoint / FILES).write_text(sizes)
    with pytest.raises(DataError, match="step_000003 is broken: "):
        require_whole(checkpoint)
