"""Known traps are refused or warned about before anything runs, in one line each."""

from __future__ import annotations

import json
import logging
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay import environments
from assay.algorithms import algorithms
from assay.config.load_settings import load_plan
from assay.errors import SettingsError
from assay.policy.load_model import is_adapted
from assay.policy.source import source_of
from assay.train import check_settings as check_settings_module
from assay.train.check_settings import check_settings
from assay.train.optimizer import default_lr
from assay.train.stage_tasks import load_stage_tasks
from assay.train.stages import prepare_all, run_plan
from assay.types import OwnTests, RepositoryTests, Task
from tests.policies import TASKS, checkpoint, run_settings
from tests.policy.test_chat import CHATML

SOUND: dict[str, Any] = {
    "rollout": {"tasks_per_step": 8, "max_tokens": 64},
    "dataset": {"batch_size": 8},
}
SFT: dict[str, Any] = {"algorithm": {"name": "sft"}}
HELD_OUT = {"tasks": "drills:test"}
REPLAY = {"train": "drills:train", "replay": {}}


def look(**changes: Any) -> None:
    settings = run_settings(**SOUND | changes)
    learns_from = algorithms[settings.algorithm["name"]].build(settings.algorithm).learns_from
    model = source_of(settings.policy)
    adapted, facts = is_adapted(settings.policy, model), model.facts
    usual = default_lr(learns_from, adapted, facts.width)
    check_settings(settings, learns_from, TASKS, adapted, facts, usual)


def test_the_best_by_a_reported_reward_needs_a_task_that_is_evaluated_and_reports_it() -> None:
    changes = {"save": {"best": "evaluate/reward"}, "evaluate": {**HELD_OUT, "every": 2}}
    settings = run_settings(**SOUND | changes)
    algorithm = algorithms["grpo"].build(settings.algorithm)
    with pytest.raises(SettingsError, match=r"save\.best.*task_data"):
        load_stage_tasks(settings, algorithm, environments.build({"name": "single_turn"}))
    unevaluated = run_settings(**SOUND | {"save": {"best": "evaluate/reward"}})
    load_stage_tasks(unevaluated, algorithm, environments.build({"name": "single_turn"}))


def test_sound_settings_pass_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    look()
    look(**SFT)
    look(save={"best": "evaluate/pass@1"}, evaluate={**HELD_OUT, "every": 2})
    look(policy={"model": "tiny", "lora": {}}, optimizer={"lr": 1e-5})
    look(
        algorithm={"name": "reinforce"},
        rollout={"tasks_per_step": 8, "group_size": 1, "max_tokens": 64},
    )
    look(
        algorithm={"name": "reinforce", "baseline": "none"},
        rollout={"tasks_per_step": 2, "group_size": 1, "max_tokens": 9},
    )
    look(
        algorithm={"name": "dpo", "pairs": "pairs.jsonl"},
        rollout={"tasks_per_step": 99, "max_tokens": 64},
    )
    look(engine={"name": "vllm", "arguments": ["--quantization", "fp8"]})
    look(tasks=REPLAY, algorithm={"name": "dppo"})
    look(tasks=REPLAY, algorithm={"name": "cispo", "anchor": "sampler"})
    look(tasks=REPLAY, **SFT)
    assert not caplog.records


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollout": {"group_size": 1, "max_tokens": 64}},
        r"rollout\.group_size = 1 every advantage of grpo is 0"),
        ({"algorithm": {"name": "reinforce"}, "rollout": {"tasks_per_step": 1, "group_size": 1,
        "max_tokens": 64}},
         r"tasks_per_step = 1 and rollout\.group_size = 1 every advantage of reinforce is 0"),
        ({"engine": {"name": "vllm", "arguments": ["--quantization", "fp8"]},
          "algorithm": {"name": "grpo", "importance_sampling": "none"}},
        "engine.arguments asks for fp8"),
        ({"rollout": {"max_tokens": 512}},
        r"rollout\.max_tokens = 512 leaves no room .* context of 512"),
        ({"tasks": REPLAY}, r"tasks\.replay .* grpo's does not; set algorithm\.name = 'dppo', or"),
        ({"tasks": REPLAY, "algorithm": {"name": "cispo"}}, r"tasks\.replay .* cispo's does not"),
        ({"tasks": REPLAY, "algorithm": {"name": "ppo"}}, r"tasks\.replay .* ppo's does not"),
        ({"tasks": REPLAY, "algorithm": {"name": "dppo", "loss_mean": "completions"}},
         r"algorithm\.loss_mean = 'completions' weighs"),
        ({"tasks": REPLAY, "algorithm": {"name": "dppo", "zero_variance_groups": "drop"}},
         r"tasks\.replay\.share .* algorithm\.zero_variance_groups = 'drop' leaves"),
        ({"tasks": REPLAY, "algorithm": {"name": "dppo", "mask_truncated": True}},
         r"tasks\.replay\.share .* algorithm\.mask_truncated = true leaves"),
    ],
)  # fmt: skip
def test_settings_with_which_nothing_could_be_learned_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        look(**changes)
    assert "\n" not in str(caught.value)


def repository_tasks() -> list[Task]:
    check = RepositoryTests("/nowhere", ("t.py::test_a",), ())
    return [Task(f"r{n}", "Repair it.", (check,), "", language="diff") for n in range(8)]


def test_milestones_are_refused_for_one_task_that_is_no_repository() -> None:
    settings = run_settings(
        **SOUND, rewards={"milestones": {}}, judge={"allow_forgeable": True}
    )  # fmt: skip
    check_settings(settings, "rollouts", repository_tasks(), False, None, 1e-6)
    with pytest.raises(SettingsError, match=f"task '{TASKS[0].id}' is none") as caught:
        check_settings(settings, "rollouts", [*repository_tasks(), TASKS[0]], False, None, 1e-6)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("check", ["repository", "own tests"])
def test_rewards_that_would_all_be_zero_are_refused_and_some_are_warned_of(
    check: str, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = repository_tasks()
    if check == "own tests":
        tasks = [replace(task, checks=(OwnTests("assert 1"),), language="go") for task in tasks]

    def prepare(tasks: list[Task], learns_from: str = "rollouts", **changes: Any) -> None:
        check_settings(run_settings(**SOUND | changes), learns_from, tasks, False, None, 1e-6)

    for names in (("tests",), ("milestones",), ("tests", "milestones")):
        with pytest.raises(SettingsError, match=r"judge\.allow_forgeable = true"):
            prepare(tasks, rewards={name: {} for name in names})
    prepare(tasks, judge={"allow_forgeable": True})
    prepare(tasks, "dialogues", **SFT)
    prepare(tasks, rewards={"tests": {}, "length": {}})
    assert "allow_forgeable" not in caplog.text
    caplog.clear()
    prepare([*tasks, *TASKS])
    (record,) = caplog.records
    assert f"8 of {len(TASKS) + 8} tasks, such as 'r0'" in record.getMessage()
    assert "judge.allow_forgeable = true" in record.getMessage()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"policy": {"lora": {}}, "optimizer": {"lr": 1e-6}},
            "optimizer.lr = 1e-06 hardly moves adapters",
        ),
        (
            {"optimizer": {"lr": 1e-6, "warmup_steps": 4}},
            "optimizer.warmup_steps = 4 of 4 steps: the learning rate never reaches its peak",
        ),
        (
            {"steps": None, "epochs": 2, "optimizer": {"lr": 1e-4, "warmup_steps": 3}},
            "optimizer.warmup_steps = 3 of 3 steps: the learning rate never reaches its peak",
        ),
        (
            SFT | {"steps": None, "epochs": 2, "optimizer": {"lr": 1e-4, "warmup_steps": 5}},
            "optimizer.warmup_steps = 5 of 3 steps: the learning rate never reaches its peak",
        ),
        ({"optimizer": {"lr": 1e30}}, "optimizer.lr = 1e+30, where 0.0003 is usual for this"),
        ({"optimizer": {"lr": 0.05}}, "may ruin the weights within a few steps; lower it"),
        (SFT | {"optimizer": {"lr": 1.0}}, "optimizer.lr = 1, where 0.003 is usual"),
        (
            {"policy": {"lora": {}}, "optimizer": {"lr": 3.0}},
            "optimizer.lr = 3, where 0.003 is usual",
        ),
        ({"optimizer": {"lr": 1e-8}}, "hardly moves the weights; raise it"),
        (
            {"rollout": {"tasks_per_step": 1, "max_tokens": 64}},
            "tasks_per_step = 1: each step follows the noise",
        ),
        (
            {"rollout": {"tasks_per_step": 13, "max_tokens": 64}},
            "13, but the training tasks are 12: a step samples a task up to 2 times",
        ),
        (
            SFT | {"dataset": {"batch_size": 13}},
            "dataset.batch_size = 13, but there are 12 demonstrations",
        ),
        ({"evaluate": {"tasks": "drills:train"}}, "evaluate.tasks = 'drills:train' is trained on"),
        (
            {"save": {"best": "evaluate/pass@1"}},
            "there is one at most; set evaluate.tasks and evaluate.every",
        ),
        (
            {"save": {"best": "evaluate/pass@1"}, "evaluate": HELD_OUT},
            "set evaluate.tasks and evaluate.every",
        ),
    ],
)
def test_settings_with_which_little_would_be_learned_are_warned_about_once(
    changes: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    look(**changes)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert message in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.parametrize(
    "optimizer",
    [{"lr": lr} for lr in (0, -1e-4, float("nan"), float("inf"), "fast")]
    + [{"betas": [0.9, 1.0]}, {"betas": [-0.1, 0.9]}, {"warmup_steps": -1}],
)
def test_rates_that_are_none_are_refused_by_name(optimizer: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"optimizer.{next(iter(optimizer))}"):
        run_settings(optimizer=optimizer)


def test_the_context_of_a_model_on_disk_is_known_before_its_weights_are_loaded(
    tmp_path: Path,
) -> None:
    made = checkpoint(tmp_path, "llama")
    (made / "model.safetensors").unlink()
    with pytest.raises(SettingsError, match="context of 2048"):
        look(policy={"model": str(made)}, rollout={"max_tokens": 2048})


@pytest.mark.parametrize("baseline", ["none", "running"])
def test_a_lone_completion_can_teach_where_nothing_else_is_its_baseline(
    baseline: str, caplog: pytest.LogCaptureFixture
) -> None:
    alone = {"tasks_per_step": 1, "group_size": 1, "max_tokens": 9}
    look(algorithm={"name": "reinforce", "baseline": baseline}, rollout=alone)
    assert "follows the noise of one task" in caplog.text


@pytest.mark.long
def test_a_stage_that_goes_on_from_adapters_has_their_rate_and_their_traps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = """
name = "two"
tasks.train = "drills:train"
policy.tiny = { vocabulary = 300, width = 32, layers = 1, heads = 1 }
[rollout]
max_tokens = 16
[stages.sft]
steps = 1
algorithm.name = "sft"
policy.lora = { rank = 4 }
[stages.rl]
steps = 1
algorithm.name = "grpo"
%s
"""
    (tmp_path / "two.toml").write_text(text % "")
    (tmp_path / "slow.toml").write_text(text % "optimizer.lr = 1e-6")
    for file in ("two", "slow"):
        words = [
            "--folder",
            str(tmp_path / file),
            "--tasks.limit",
            "2",
            "--rollout.tasks_per_step",
            "2",
        ]
        run_plan(load_plan(tmp_path / f"{file}.toml", words))
    saved = tomllib.loads((tmp_path / "two/two/rl/config.toml").read_text())
    assert saved["optimizer"]["lr"] == 3e-3, "10 times 300 times 1e-6"
    assert "stage 'rl': optimizer.lr = 1e-06 hardly moves adapters" in caplog.text


def test_a_mixture_of_experts_is_refused_where_generating_is_not_learning(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "llama")
    config = json.loads((folder / "config.json").read_text())
    mixture = config | {"model_type": "mixtral", "num_local_experts": 4}
    (folder / "config.json").write_text(json.dumps(mixture))
    policy, rollout = {"model": str(folder)}, {**SOUND["rollout"], "max_staleness": 1}
    look(policy=policy)
    for changes in ({"engine": {"name": "vllm"}}, {"rollout": rollout}):
        with pytest.raises(SettingsError, match="is a mixture of experts"):
            look(policy=policy, **changes)
    (folder / "config.json").write_text(json.dumps(config))
    look(policy=policy, rollout=rollout)


def test_bfloat16_is_warned_about_on_a_processor_without_its_instructions(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for there, warnings in ((True, 0), (False, 1)):
        monkeypatch.setattr(check_settings_module, "has_bfloat16", lambda there=there: there)
        look(policy={"dtype": "bfloat16", "device": "cpu"})
        assert len(caplog.records) == warnings
    assert "2.6 to 25 times slower than float32" in caplog.text


def test_rows_without_tests_before_rl_with_a_template_are_warned_of_with_both_prompts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint(tmp_path, "llama", CHATML)
    rows, tasks = tmp_path / "rows.jsonl", tmp_path / "tasks.jsonl"
    rows.write_text('{"prompt": "Add.", "answer": "```python\\ndef add(a, b): ...\\n```"}\n')
    tasks.write_text(
        '{"prompt": "Add.", "entry_point": "add", "tests": ["assert add(1, 2) == 3"]}\n'
    )
    text = f'''policy = {{ model = "{tmp_path}/llama", chat = "CHAT" }}
        stages.sft = {{ steps = 1, algorithm.name = "sft", tasks.train = "{rows}" }}
        stages.rl = {{ steps = 1, algorithm.name = "grpo", tasks.train = "{tasks}" }}'''
    for chat, count in (("text", 0), ("auto", 1)):
        (tmp_path / "plan.toml").write_text(text.replace("CHAT", chat))
        caplog.clear()
        prepare_all(load_plan(tmp_path / "plan.toml"))
        found = [one for one in caplog.messages if "learns to answer" in one]
        assert len(found) == count
    assert (
        "stage 'sft' learns to answer 'Add.', and stage 'rl' asks 'Solve this task in" in found[0]
    )


@pytest.mark.parametrize(
    ("algorithm", "tokens", "warned"),
    [
        ({"name": "rloo", "epochs": 2}, 513, "algorithm.ratio = 'product'"),
        ({"name": "rloo", "epochs": 2}, 512, ""),
        ({"name": "rloo"}, 513, ""),
        ({"name": "gspo", "minibatches": 2}, 513, ""),
        ({"name": "grpo", "ratio": "product", "minibatches": 2}, 513, "use 'mean'"),
        ({"name": "cispo", "ratio": "product", "anchor": "sampler"}, 513, "use 'mean'"),
        ({"name": "grpo", "importance_sampling": "sequence_mask"}, 513, "use 'token_mask'"),
        ({"name": "grpo"}, 513, ""),
    ],
)
def test_a_product_over_long_completions_is_warned_of(
    algorithm: dict[str, Any], tokens: int, warned: str, caplog: pytest.LogCaptureFixture
) -> None:
    rollout = {"tasks_per_step": 8, "max_tokens": tokens}
    settings = run_settings(**SOUND | {"algorithm": algorithm, "rollout": rollout})
    check_settings(settings, "rollouts", TASKS, False, None, 1e-6)
    assert len(caplog.records) == bool(warned)
    assert warned in caplog.text
