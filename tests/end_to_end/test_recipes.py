"""Recipes for models that are not here, and the commands of docs/recipes.md that change a recipe:
each takes two steps with a random model of the same architecture.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from assay.config.generation import EngineSettings
from assay.config.load_settings import Plan, load_plan
from assay.config.sections import RunSettings
from assay.errors import DataError, SettingsError
from assay.train.stages import prepare_all, run_plan
from tests.end_to_end.recipes import assay
from tests.environments.repositories import FIX, repository
from tests.policies import change_json, checkpoint
from tests.policy.test_chat import CHATML

ROOT = Path(__file__).parent.parent.parent
ARCHITECTURES = {"deepseek": "llama", "qwen": "qwen2"}
SMALL: dict[str, dict[str, Any]] = {
    "rollout": {"tasks_per_step": 2, "max_tokens": 6},
    "dataset": {"batch_size": 2},
    "judge": {"slots": 2},
}
pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Case:
    """A recipe, with the settings that a command of docs/recipes.md adds."""

    recipe: Path
    settings: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        return load_plan(self.recipe, list(self.settings))


def commands() -> dict[str, list[str]]:
    """The commands of docs/recipes.md that change a recipe, by the name that each gives its run."""
    page = (ROOT / "docs" / "recipes.md").read_text()
    (block,) = re.findall(r"^```sh not run: needs GPUs$(.*?)^```$", page, re.M | re.S)
    found = re.findall(r"^assay train .*?(?=\n\n|\n#|\Z)", block, re.M | re.S)
    split = [shlex.split(words.replace("\\\n", " "))[2:] for words in found]
    return {words[words.index("--name") + 1]: words for words in split}


def cases() -> list[ParameterSet]:
    """Rows of q are not here: tests/q has its recipe and its command."""
    named = {name: Case(ROOT / "recipes" / f"{name}.toml") for name in ("gsm8k", "competitive")}
    named |= {name: Case(ROOT / "recipes" / f"{words[0]}.toml", tuple(words[1:]))
              for name, words in commands().items() if words[0] != "q"}  # fmt: skip
    return [
        pytest.param(case, id=name, marks=pytest.mark.data(*sets) if (sets := data(case)) else ())
        for name, case in named.items()
    ]


def data(case: Case) -> set[str]:
    """The public data that it reads."""
    specs = [spec for stage in case.plan.stages for spec in
             (*stage.tasks.train, *(stage.evaluate.tasks if stage.evaluate else ()))]  # fmt: skip
    names = {spec.partition(":")[0] for spec in specs if not spec.endswith(".jsonl")}
    return names - {"drills", "verigenllm"}


BENCH = """module tb;
  reg a; wire b; inverter dut(.a(a), .b(b));
  initial begin
    a = 0; #1 $display("Test Summary: %0d/1 tests passed", b === 1); $finish;
  end
endmodule
"""


ADD, TWICE = (f"tests/test_calc.py::test_{name}" for name in ("add", "twice"))
BROKEN = f"```diff\n{FIX.replace('a + b', 'b - a')}```"


def own_rows(case: Case, folder: Path) -> list[str]:
    """Overrides for a recipe whose rows have to be made: those of VeriGenLLM-v2, repositories."""
    if case.recipe.stem == "repository":
        task = repository(folder)
        row = {"tree": "tree", "prompt": task.prompt, "reference": task.reference, "hidden": False,
               "demonstrations": [BROKEN], "FAIL_TO_PASS": [ADD],
               "PASS_TO_PASS": [TWICE]}  # fmt: skip
        rows = [json.dumps(row | {"id": f"calc/{number}"}) for number in range(4)]
        file = folder / "tasks.jsonl"
        file.write_text("\n".join(rows))
        return ["--tasks.train", str(file), "--evaluate.tasks", str(file)]
    if "verigenllm:prompt3" not in case.settings:
        return []
    for name in "one", "two", "three", "four":
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "tb_i.v").write_text(BENCH)
        (folder / name / "prompt3_i.v").write_text("module inverter (input a, output b);\n")
    return ["--tasks.train", f"verigenllm:prompt3@{folder}"]


def loaded(case: Case, folder: Path) -> Plan:
    """The recipe's plan; skips where one of its tools is not here."""
    plan = load_plan(case.recipe, [*case.settings, *own_rows(case, folder)])
    try:
        prepare_all(plan, dry_run=True)
    except (DataError, SettingsError) as error:
        if "install" in str(error):
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


@pytest.mark.parametrize("case", cases())
def test_a_recipe_takes_two_steps_with_a_random_model_of_its_architecture(
    case: Case, tmp_path: Path, model_like: Callable[[str], Path]
) -> None:
    plan = loaded(case, tmp_path / "rows")
    model = model_like(plan.stages[0].policy.model)
    stages = tuple(small(stage, model, tmp_path / "runs") for stage in plan.stages)
    outcome = run_plan(replace(plan, stages=stages))
    assert outcome.finished
    for stage in stages:
        lines = (outcome.folder / stage.stage / "metrics.jsonl").read_text().splitlines()
        steps = {json.loads(line)["step"] for line in lines if '"loss"' in line}
        assert steps == {1, 2}


@pytest.mark.data("humaneval")
def test_a_dry_run_says_what_each_stage_would_do_and_writes_nothing(tmp_path: Path) -> None:
    ran = assay("train", *commands()["ppo"], "--dry-run", folder=tmp_path, HF_HUB_OFFLINE="1")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    evaluated = "131 tasks of humaneval:train131, 33 of humaneval:test33 to evaluate"
    assert [line.partition(", ")[2].partition(", ")[2] for line in lines] == [evaluated] * 2
    assert [line.partition(" of ")[0] for line in lines] == [
        "sft: sft",
        "rl: ppo",
    ]
    assert list(tmp_path.iterdir()) == []
