"""The recipes of the seeds: each passes a dry run, and takes two steps with a random model of the
same architecture.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from assay.config.generation import EngineSettings
from assay.config.load import Plan, load_plan
from assay.config.sections import RunSettings
from assay.errors import DataError, SettingsError
from assay.train.stages import prepare_all, run_plan
from tests.end_to_end.recipes import assay
from tests.environments.repositories import FIX, repository
from tests.policies import change_json, checkpoint
from tests.policy.test_chat import CHATML

ROOT = Path(__file__).parent.parent.parent
RECIPES = sorted((ROOT / "recipes").glob("seed00[!4]*.toml"))
"""Those of seed 004 need rows that are not here: tests/q has theirs."""
ARCHITECTURES = {"deepseek": "llama", "qwen": "qwen2"}
SMALL: dict[str, dict[str, Any]] = {
    "rollout": {"tasks_per_step": 2, "max_tokens": 6},
    "dataset": {"batch_size": 2},
    "judge": {"slots": 2},
}
pytestmark = pytest.mark.long


BENCH = """module tb;
  reg a; wire b; inverter dut(.a(a), .b(b));
  initial begin
    a = 0; #1 $display("Test Summary: %0d/1 tests passed", b === 1); $finish;
  end
endmodule
"""


ADD, TWICE = (f"tests/test_calc.py::test_{name}" for name in ("add", "twice"))
BROKEN = f"```diff\n{FIX.replace('a + b', 'b - a')}```"


def own_rows(recipe: Path, folder: Path) -> list[str]:
    """Overrides for a recipe whose rows have to be made: those of VeriGenLLM-v2, repositories."""
    if "patch" in recipe.name:
        task = repository(folder)
        row = {"tree": "tree", "prompt": task.prompt, "reference": task.reference, "hidden": False,
               "demonstrations": [BROKEN], "FAIL_TO_PASS": [ADD],
               "PASS_TO_PASS": [TWICE]}  # fmt: skip
        rows = [json.dumps(row | {"id": f"calc/{number}"}) for number in range(4)]
        (folder / "tasks.jsonl").write_text("\n".join(rows))
        return ["--tasks.train", str(folder / "tasks.jsonl")]
    if "seed003" not in recipe.name:
        return []
    for name in "one", "two", "three", "four":
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "tb_i.v").write_text(BENCH)
        for prompt in "prompt1_i.v", "prompt2_i.v", "prompt3_i.v":
            (folder / name / prompt).write_text("module inverter (input a, output b);\n")
    stages = {"detailed": 3, "medium": 2, "vague": 1}
    words = [[f"--stages.{stage}.tasks.train", f"verigenllm:prompt{number}@{folder}"]
             for stage, number in stages.items()]  # fmt: skip
    return [word for pair in words for word in pair]


def loaded(recipe: Path, folder: Path) -> Plan:
    """The recipe's plan; skips where its data or one of its tools is not here."""
    plan = load_plan(recipe, own_rows(recipe, folder))
    try:
        prepare_all(plan, dry_run=True)
    except (DataError, SettingsError) as error:
        if any(word in str(error) for word in ("ASSAY_DATA", "install")):
            pytest.skip(str(error))
        raise
    return plan


def small(stage: RunSettings, model: Path, folder: Path) -> RunSettings:
    """The stage with a small model and two small steps; all else as the recipe has it."""
    table = stage.model_dump(mode="json", exclude_none=True)
    table |= {"folder": str(folder), "steps": 2, "trackers": ["jsonl"]}
    table.pop("epochs", None)
    for section, values in SMALL.items():
        table[section] = {**table[section], **values}
    table["rollout"]["group_size"] = min(2, stage.rollout.group_size)
    table["tasks"]["limit"] = 4
    table["policy"] |= {"model": str(model), "device": "cpu"}
    table["policy"].pop("quantize", None)
    table["engine"] = EngineSettings(kv_cache_tokens=16_384).model_dump(mode="json")
    if stage.evaluate:
        table["evaluate"] |= {"limit": 1, "samples": 1, "max_tokens": 4, "every": 0}
    return RunSettings.model_validate(table)


@pytest.fixture(scope="module")
def model_like(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A random model of the architecture that a hub name stands for, with a chat template if it is
    an instruct model.
    """

    @cache
    def made(kind: str, chats: bool) -> Path:
        folder = checkpoint(tmp_path_factory.mktemp(kind), kind, CHATML if chats else None)
        change_json(folder / "config.json", max_position_embeddings=16_384)
        return folder

    def like(name: str) -> Path:
        (kind,) = {kind for word, kind in ARCHITECTURES.items() if word in name.lower()}
        return made(kind, "instruct" in name.lower())

    return like


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_takes_two_steps_with_a_random_model_of_its_architecture(
    recipe: Path, tmp_path: Path, model_like: Callable[[str], Path]
) -> None:
    plan = loaded(recipe, tmp_path / "rows")
    model = model_like(plan.stages[0].policy.model)
    stages = tuple(small(stage, model, tmp_path / "runs") for stage in plan.stages)
    outcome = run_plan(replace(plan, stages=stages))
    assert outcome.finished
    for stage in stages:
        lines = (outcome.folder / stage.stage / "metrics.jsonl").read_text().splitlines()
        steps = {json.loads(line)["step"] for line in lines if '"loss"' in line}
        assert steps == {1, 2}


def test_the_recipe_of_patches_passes_a_dry_run(tmp_path: Path) -> None:
    recipe = ROOT / "recipes" / "seed002-patch.toml"
    rows = own_rows(recipe, tmp_path / "rows")
    ran = assay("train", recipe, "--dry-run", *rows, folder=tmp_path, HF_HUB_OFFLINE="1")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("4 tasks of") == 2


def test_a_dry_run_says_what_each_stage_would_do_and_writes_nothing(tmp_path: Path) -> None:
    recipe = ROOT / "recipes" / "seed001-deepseek-1.3b-ppo.toml"
    loaded(recipe, tmp_path)
    ran = assay("train", recipe, "--dry-run", folder=tmp_path, HF_HUB_OFFLINE="1")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        f"{stage} of deepseek-ai/deepseek-coder-1.3b-base, {steps} steps, 131 tasks of"
        " humaneval:train131, 33 of humaneval:test33 to evaluate"
        for stage, steps in (("sft: sft", 200), ("ppo: ppo", 100))
    ]
    assert list(tmp_path.iterdir()) == []
