"""Runs of several turns: demonstrations are played, turns are written, told, judged, learned from
and measured.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pyarrow.parquet as parquet
import pytest

from assay import environments
from assay.config.evaluation import EvaluationRun
from assay.config.load_settings import load_plan
from assay.config.sections import EvaluateSettings, PolicySettings
from assay.errors import DataError
from assay.evaluate import evaluate
from assay.policy.load_model import load_policy
from assay.rollout.prompter import Prompter
from assay.tasks import load
from assay.train.stages import run_plan
from tests.end_to_end.recipes import TINY, write
from tests.end_to_end.test_reward_goes_up import SETTINGS
from tests.policies import tiny_policy

REPAIR = """
[environment]
name = "repair"
turns = 3
[stages.rl]
steps = {rl}
rollout = {{ score_turns = true, group_size = {group} }}
algorithm = {{ name = "grpo", scale = "none" }}
optimizer = {{ lr = 1e-3, warmup_steps = 2 }}
"""


def run(folder: Path, sft: int, rl: int, group: int = 8) -> list[dict[str, float]]:
    """The numbers of every step of RL, after so many of SFT."""
    text = SETTINGS.replace(
        'trackers = ["jsonl"]', 'trackers = ["jsonl", "rollouts"]'
    ) + REPAIR.format(rl=rl, group=group)
    words = ["--folder", str(folder / "runs"), "--stages.sft.steps", str(sft)]
    run_plan(load_plan(write(folder, text), words))
    return [
        json.loads(line) for line in (folder / "runs/up/rl/metrics.jsonl").read_text().splitlines()
    ]


@pytest.mark.long
def test_a_run_of_several_turns_trains_and_is_measured(tmp_path: Path) -> None:
    steps = run(tmp_path, 25, 2)
    assert all(1 < step["rollout/turns"] <= 3 for step in steps)
    assert all(step["learn/tokens"] > 0 for step in steps)
    rows = parquet.read_table(tmp_path / "runs/up/rl/rollouts/step_000001.parquet").to_pylist()
    told = [row for row in rows if row["observation"]]
    assert told
    assert {row["turn"] for row in told} <= {0, 1}, "nothing is told after the third"
    assert all(row["observation"].startswith("That fails: ") for row in told)

    model = PolicySettings(model=str(tmp_path / "runs/up/rl/checkpoints/step_000002"))
    settings = EvaluateSettings(tasks="drills:longer", limit=3, samples=2, max_tokens=40)
    done = evaluate(
        EvaluationRun(policy=model, evaluate=settings, environment={"name": "repair"}),
        folder=tmp_path / "report",
    )
    assert done.evaluations[0].mean_length > 40, "more than a turn"
    hidden = EvaluateSettings(tasks=str(tmp_path / "hidden.jsonl"), samples=1)
    (tmp_path / "hidden.jsonl").write_text(
        '{"id": "a", "prompt": "f", "entry_point": "f", "tests": ["assert f() == 1"]}'
    )
    with pytest.raises(DataError, match="'repair' needs a visible check"):
        evaluate(
            EvaluationRun(policy=model, evaluate=hidden, environment={"name": "repair"}),
            folder=tmp_path / "other",
        )


def test_an_environments_instructions_are_in_the_prompts_of_a_run_and_of_an_evaluation(
    tmp_path: Path,
) -> None:
    tiny_policy(tmp_path)
    model = PolicySettings(model=str(tmp_path / "tiny"))
    chat, tool = load_policy(model).chat, environments.build({"name": "python_tool"})
    prompters = Prompter(chat), Prompter(chat, tool)
    plain, long = (
        max(len(prompter.prompt(task)) for task in load("drills:train", limit=40))
        for prompter in prompters
    )
    assert long > plain + 60
    said = f"has a prompt of {long} tokens: with max_tokens = 200"
    settings = EvaluateSettings(tasks="drills:train", limit=1, samples=1, max_tokens=8)
    done = evaluate(
        EvaluationRun(policy=model, evaluate=settings, environment={"name": "python_tool"}),
        folder=tmp_path / "report",
    )
    assert (
        "# " + tool.instructions(load("drills:train", limit=1)[0]).splitlines()[0]
        in (done.setups[0]["prompt"]["messages"][0]["content"])
    )
    text = TINY.replace("[stages.sft]", '[environment]\nname = "python_tool"\n[stages.sft]')
    words = [
        "--folder",
        str(tmp_path),
        "--policy.model",
        str(model.model),
        "--rollout.max_tokens",
        "200",
    ]
    plan = load_plan(write(tmp_path, text), words)
    rl = replace(plan, stages=plan.stages[1:], starts_anew=plan.starts_anew[1:])
    with pytest.raises(DataError, match=said):
        run_plan(rl)


@pytest.mark.long
def test_the_reward_of_several_turns_goes_up(tmp_path: Path) -> None:
    rates = [step["reward/pass_rate"] for step in run(tmp_path, 80, 20, 16)]
    assert rates[0] < 0.75, "there is room"
    assert fmean(rates[-4:]) > fmean(rates[:3]) + 0.1, str(rates)
