"""Twelve ways to break a run, each on a tiny model that has learned a few drills: within ten steps
the console names what is wrong, and what mends it. docs/troubleshooting.md has the same rows.
"""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from assay.config.load_settings import load_plan
from assay.config.warning_names import WarningName
from assay.errors import MachineError, UnhealthyError
from assay.train.stages import run_plan
from tests.end_to_end.recipes import write
from tests.policies import change_json

ROOT = Path(__file__).parents[2]
SETTINGS = """
name = "run"
trackers = ["jsonl"]
plugins = ["PLUGIN"]
tasks.train = "sums"
[policy]
device = "cpu"
[policy.tiny]
vocabulary = 290
width = 32
layers = 1
heads = 2
[rollout]
tasks_per_step = 6
group_size = 8
max_tokens = 24
"""
SFT = """
[stages.sft]
steps = 120
algorithm.name = "sft"
dataset.batch_size = 12
optimizer = { lr = 1e-2, schedule = "linear", warmup_steps = 5 }
"""
RL = """
[stages.rl]
steps = 10
algorithm.name = "grpo"
optimizer.lr = 3e-4
"""


def settings(folder: Path, text: str) -> Path:
    return write(
        folder, SETTINGS.replace("PLUGIN", str(Path(__file__).parent / "breaks.py")) + text
    )


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that solves some of the drills at times."""
    folder = tmp_path_factory.mktemp("taught")
    run_plan(load_plan(settings(folder, SFT), ["--folder", str(folder / "runs")]))
    return max((folder / "runs/run/sft/checkpoints").iterdir())


def warnings(folder: Path, model: Path, **changes: Any) -> list[dict[str, Any]]:
    """The events of ten steps from a model."""
    words = ["--folder", str(folder / "runs"), "--policy.model", str(model)]
    for name, value in changes.items():
        words += [f"--stages.rl.{name.replace('__', '.')}", str(value)]
    run_plan(load_plan(settings(folder, RL), words))
    file = folder / "runs/run/rl/events.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def adapter_of_zeros(model: Path, folder: Path) -> Path:
    """An adapter that no gradient reaches: both of its factors are 0."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    adapted = get_peft_model(
        AutoModelForCausalLM.from_pretrained(model),
        LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    )
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.zero_()
    adapted.save_pretrained(folder / "adapter")
    return folder / "adapter"


def with_template(model: Path, folder: Path) -> Path:
    """The model with a chat template that it has never seen."""
    shutil.copytree(model, folder / "templated")
    change_json(
        folder / "templated" / "tokenizer_config.json",
        chat_template="{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}",
    )
    return folder / "templated"


BROKEN: dict[str, tuple[WarningName, str, dict[str, Any]]] = {
    "learning rate too high": ("collapse", "lower optimizer.lr", {"optimizer__lr": 1}),
    "rewards that are all equal": (
        "flat_rewards", "[rewards]", {"rewards": "{ same = {} }"}
    ),
    "reward with the wrong sign": (
        "wrong_sign", "negative weight", {"rewards": "{ tests = { weight = -1 } }"}
    ),
    "completions all cut off": ("truncated", "raise it", {"rollout__max_tokens": 4}),
    "wrong chat template": ("no_program", "policy.chat", {}),
    "stale engine": ("stale_engine", "restart", {"engine__name": "old", "optimizer__lr": 3e-3}),
    "adapter frozen": ("frozen", "policy.lora", {}),
    "tasks too hard": ("too_hard", "easier", {"tasks__train": "impossible"}),
    "tasks too easy": (
        "too_easy", "harder", {"tasks__train": "trivial", "rollout__temperature": 0.3}
    ),
    "entropy collapse": (
        "entropy_collapse", "algorithm.entropy_bonus",
        {"algorithm__name": "narrow", "optimizer__lr": 1e-2},
    ),
    "length collapse": (
        "length_collapse", "rewards.length",
        {"rewards": "{ short = {} }", "optimizer__lr": 1e-2, "rollout__temperature": 2},
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("run", BROKEN)
def test_a_broken_run_is_named_within_ten_steps_with_what_mends_it(
    taught: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, run: str
) -> None:
    name, advice, changes = BROKEN[run]
    make = {"adapter frozen": adapter_of_zeros, "wrong chat template": with_template}.get(run)
    model = make(taught, tmp_path) if make else taught
    with caplog.at_level(logging.WARNING):
        events = warnings(tmp_path, model, **changes)
    assert [event["event"] for event in events][:1] == [name], events
    assert advice in events[0]["text"]
    assert f"step {events[0]['step']}: {name}: " in caplog.text


@pytest.mark.long
def test_a_rate_that_makes_nan_is_named_and_the_data_type_is_not(
    taught: Path, tmp_path: Path
) -> None:
    with pytest.raises(MachineError, match=r"lower optimizer\.lr") as raised:
        warnings(tmp_path, taught, optimizer__lr=1e20)
    assert "float32" not in str(raised.value)


@pytest.mark.long
def test_stop_if_ends_the_run_before_the_step_is_saved_and_names_the_checkpoint(
    taught: Path, tmp_path: Path
) -> None:
    stop = {"stop_if": "flat_rewards", "save__every": 4}
    with pytest.raises(UnhealthyError, match=r"step 8: flat_rewards: .*step_000004"):
        warnings(tmp_path, taught, rewards="{ same = {} }", **stop)


@pytest.mark.long
def test_a_healthy_run_is_warned_of_nothing(taught: Path, tmp_path: Path) -> None:
    assert warnings(tmp_path, taught) == []


@pytest.mark.long
def test_the_first_steps_of_the_demo_are_warned_of_nothing(tmp_path: Path) -> None:
    words = ["--folder", str(tmp_path), "--stages.grpo.steps", "10", "--evaluate.limit", "1"]
    run_plan(load_plan(ROOT / "recipes" / "demo.toml", [*words, "--stages.sft.epochs", "4"]))
    assert len((tmp_path / "demo/grpo/metrics.jsonl").read_text().splitlines()) == 10
    assert not (tmp_path / "demo/grpo/events.jsonl").exists()


def test_the_page_has_a_row_for_each_broken_run_and_names_every_warning() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    section = page.split("## Warnings of a run")[1].split("\n## ")[0]
    cells = [line.split("|")[1:5] for line in section.splitlines() if line.startswith("| ")][1:]
    rows = {what.strip(): (named.strip(" `"), mends) for what, named, _, mends in cells}
    assert rows.keys() == {*BROKEN, "NaN"}
    for what, (name, advice, _) in BROKEN.items():
        assert rows[what][0] == name
        assert any(word in rows[what][1] for word in advice.split()), (what, advice)
    assert {name for name in get_args(WarningName) if f"`{name}`" not in section} == set()
