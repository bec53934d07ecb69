"""A run that continues notices that what it reads has changed: tasks, plug-ins, pairs, a model."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.config.load_settings import load_plan
from assay.errors import SettingsError
from assay.registry import installed
from assay.train.stages import PlanOutcome, run_plan
from tests.policies import checkpoint
from tests.test_installed_plugins import install

PLUG_IN = """from assay.rewards import reward
@reward
def of_inputs(rollout):
    from parts import beside
    return 1.0
"""
INSTALLED = PLUG_IN.replace("of_inputs", "installed_of_inputs").replace("parts", "inputs_package")
PLAN = """
name = "mine"
trackers = ["jsonl"]
steps = 1
plugins = ["plug_in.py"]
policy.model = "model/llama"
tasks.train = "train.jsonl"
judge.allow_weak_isolation = true
algorithm.name = "sft"
dataset.batch_size = 1
rewards = { of_inputs = {}, installed_of_inputs = {} }
[stages.first]
"""
PAIRS = """
[stages.next]
algorithm = { name = "dpo", pairs = "pairs.jsonl" }
[stages.last]
algorithm = { name = "kto", labels = "labels.jsonl" }
dataset.batch_size = 2
"""


def row(text: str) -> dict[str, object]:
    messages = [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": text}]
    return {"id": "one", "messages": messages}


def again(folder: Path, *, allow_changes: bool = False) -> PlanOutcome:
    words = ["--folder", str(folder / "runs")]
    return run_plan(load_plan(folder / "plan.toml", words), allow_changes=allow_changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a run of two stages with the files that it reads."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "plan.toml").write_text(PLAN + PAIRS)
    (folder / "plug_in.py").write_text(PLUG_IN)
    (folder / "site").mkdir()
    for package in ("parts", "site/inputs_package"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text("")
        (folder / package / "beside.py").write_text("x = 1")
    (folder / "site/inputs_package/reward.py").write_text(INSTALLED)
    install(folder / "site", "of-inputs", "rewards.installed_of_inputs = inputs_package.reward")
    (folder / "train.jsonl").write_text(json.dumps(row("ok")) + "\n")
    pair = {"prompt": "Say it.", "chosen": "ok", "rejected": "no"}
    (folder / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    labels = [{"prompt": text, "completion": "ok", "label": text == "a"} for text in "ab"]
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    checkpoint(folder / "model", "llama")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "site")
        installed.cache_clear()
        assert again(folder).finished
        yield folder
    installed.cache_clear()
    for name in [name for name in sys.modules if name.startswith("inputs_package")]:
        del sys.modules[name]


def change_weights(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


CHANGES: dict[str, Callable[[Path], object]] = {
    "tasks.train": lambda path: (path / "train.jsonl").write_text(json.dumps(row("no")) + "\n"),
    "plug-in": lambda path: (path / "plug_in.py").write_text(PLUG_IN.replace("1.0", "2.0")),
    "plug-in .*parts/beside.py": lambda path: (path / "parts/beside.py").write_text("x = 2"),
    "plug-in rewards.installed_of_inputs of the package of-inputs": lambda path: (
        path / "site/inputs_package/beside.py"
    ).write_text("x = 2"),
    "algorithm.pairs": lambda path: (path / "pairs.jsonl").write_text(
        json.dumps({"prompt": "Say it.", "chosen": "no", "rejected": "ok"})
    ),
    "algorithm.labels": lambda path: (path / "labels.jsonl").write_text(
        (path / "labels.jsonl").read_text().replace('"ok"', '"no"')
    ),
    "policy.model": lambda path: change_weights(path / "model/llama/model.safetensors"),
}


@contextmanager
def changed(folder: Path, name: str) -> Iterator[None]:
    """One input has other content in the block; then all is as it was."""
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    try:
        CHANGES[name](folder)
        yield
    finally:
        shutil.rmtree(folder / "runs")
        for file, data in before.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_whose_inputs_have_changed_is_refused_by_their_name(
    finished: Path, name: str
) -> None:
    with (
        changed(finished, name),
        pytest.raises(SettingsError, match=f"{name} .*other content.*--allow-changes") as why,
    ):
        again(finished)
    assert "\n" not in str(why.value)
    assert why.value.args[0].count("has other content") == 1, "nothing else has changed"


@pytest.mark.parametrize(
    "name",
    ["policy.model", *(pytest.param(name, marks=pytest.mark.long)
                       for name in CHANGES if name != "policy.model")],
)  # fmt: skip
def test_a_run_whose_inputs_have_changed_goes_on_where_that_is_allowed(
    finished: Path, name: str
) -> None:
    with changed(finished, name):
        assert again(finished, allow_changes=True).finished
        stages = {"algorithm.pairs": "next", "algorithm.labels": "last"}
        stage = finished / "runs/mine" / stages.get(name, "first")
        events = [json.loads(line) for line in (stage / "events.jsonl").read_text().splitlines()]
        assert events[-1]["event"] == "inputs"
        assert re.search(name, events[-1]["text"])
        assert again(finished).finished, "it was allowed once, and is what the run has read now"


def test_a_file_of_tasks_that_is_only_formatted_anew_has_not_changed(finished: Path) -> None:
    (finished / "train.jsonl").write_text(json.dumps([row("ok")], indent=2))
    assert again(finished).finished
