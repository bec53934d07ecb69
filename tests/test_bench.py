"""The benchmarks start, or say in one line what they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import pytest
import torch

from assay.callbacks import StageHistory
from assay.config.load_settings import load_plan
from bench import choices, generate, kv_caches
from bench.sides import alternate
from tests.policies import checkpoint

BENCH = Path(__file__).parent.parent / "bench"
BENCHES = sorted(BENCH.glob("*.py"))
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
SIDE = """
import sys
from bench.sides import turn
for _ in range(3):
    with turn() as step:
        step["number"] = float(sys.argv[1])
        open(sys.argv[2], "a").write(sys.argv[1])
"""


@pytest.mark.parametrize("name", ["attacks", "evalplus", "judge", "languages", "verdicts"])
def test_without_public_data_a_benchmark_says_what_to_set(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASSAY_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", [name])
    with pytest.raises(SystemExit) as ended:
        import_module(f"bench.{name}").main()
    assert str(ended.value.code).startswith("ASSAY_DATA is not set")
    assert "\n" not in str(ended.value.code)


@pytest.mark.long
def test_the_benchmark_of_an_update_on_a_gpu_runs_dry_with_each_lever_off() -> None:
    command = [sys.executable, "-m", "bench.step", "--levers", "--dry"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    names = [line.partition(":")[0] for line in done.stdout.splitlines()[1:]]
    levers = [
        "every lever",
        "without shared prompts",
        "without packing",
        "without packing, with whole logits",
    ]
    figures = [f"{kind}, {lever}" for kind in ("full", "LoRA") for lever in levers]
    assert names == [*figures, *(f"{kind}, every lever, of its time" for kind in ("full", "LoRA"))]


@pytest.mark.parametrize(("apart", "order"), [(False, "121212"), (True, "111222")])
def test_two_sides_take_turns_or_one_ends_before_the_other_starts(
    tmp_path: Path, apart: bool, order: str
) -> None:
    log = tmp_path / "log"
    sides = [[sys.executable, "-c", SIDE, number, str(log)] for number in "12"]
    rounds = alternate(sides, 2, apart)
    assert log.read_text() == order
    assert [[step["number"] for step in steps] for steps in rounds] == [[1, 2]] * 2
    assert all(step["peak"] > 1 for steps in rounds for step in steps)


def test_the_table_of_kv_caches_shows_what_the_probe_chooses_and_the_models_own_error() -> None:
    exact = kv_caches.probe(kv_caches.random_model("Qwen3", "float32"))
    assert exact["cache"] == "fused"
    assert float(exact["error"]) < float(exact["limit"]) == 2e-3
    rounded = kv_caches.probe(kv_caches.random_model("GPT2", "bfloat16"))
    assert rounded["cache"] == "kv_cache"
    assert 0 < float(rounded["the model's own"]) < float(rounded["limit"])


@pytest.mark.long
@pytest.mark.parametrize("fixed", [False, True])
def test_generation_of_a_pretrained_model_is_measured_on_tasks_through_its_chat_template(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fixed: bool,
) -> None:
    folder = checkpoint(tmp_path, "llama", TEMPLATE)
    words = ["--model", str(folder), "--prompts", "1", "--tokens", "3", "--rounds", "1"]
    words += ["--threads", str(torch.get_num_threads())]  # it sets the number of this process
    words += ["--no-static", "--dtype", "float32", *(["--fixed"] if fixed else [])]
    monkeypatch.setattr(sys, "argv", ["generate", *words])
    generate.main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[3:]]
    assert [row[0] for row in rows] == [
        "| transformers generate, float32", "| engines/torch, float32"
    ]  # fmt: skip
    assert not fixed or [row[-1] for row in rows] == ["3 |", "3 |"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["step", "whole"])
def test_updates_and_whole_steps_of_a_pretrained_model_are_measured_beside_trl(
    tmp_path: Path, name: str
) -> None:
    pytest.importorskip("trl")
    words = ["--model", str(checkpoint(tmp_path, "llama", TEMPLATE)), "--rounds", "1"]
    words += ["--lengths", "66"] if name == "step" else ["--apart", "--lora"]
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{name}", *words, "--without", "bfloat16"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "by CPU time **" in done.stdout


@pytest.mark.parametrize(
    "name", sorted(file.stem for file in BENCHES if "add_argument" in file.read_text())
)
def test_a_benchmark_is_named_in_the_readme_or_belongs_to_one_that_is(name: str) -> None:
    page = (BENCH / "README.md").read_text() + (BENCH.parent / "Makefile").read_text()
    assert f"bench.{name}" in page or f"from bench.{name} import" in "".join(
        file.read_text() for file in BENCHES
    )


@pytest.mark.parametrize(
    ("name", "mark"),
    [("algorithms", "algorithms"), ("choices", "choices"), ("environments", "repair"),
     ("environments", "python_tool")],
)  # fmt: skip
def test_the_page_that_a_benchmark_writes_has_a_place_for_its_table(name: str, mark: str) -> None:
    page = import_module(f"bench.{name}").PAGE.read_text()
    assert f"<!-- measured: {mark} -->\n" in page
    assert "<!-- end" in page.partition(f"<!-- measured: {mark} -->\n")[2]


ROW = """{"id": "add", "prompt": "Add.", "entry_point": "add", "tests": ["assert add(1, 2) == 3"],
 "reference": "def add(a, b):\\n    return a + b\\n"}""".replace("\n ", " ")
SMALL = """
tasks = { train = "drills:train", limit = 8 }
rollout = { tasks_per_step = 2, group_size = 2, max_tokens = 8 }
evaluate = { tasks = "drills:test", limit = 2, samples = 1, max_tokens = 8 }
judge.slots = 2
policy.tiny = { vocabulary = 320, width = 32, layers = 1, heads = 2 }
[stages.sft]
steps = 1
algorithm.name = "sft"
evaluate.before = true
[stages.grpo]
steps = 1
algorithm.name = "grpo"
"""
SMALLEST = {
    "admission": "--seeds 1 --epochs 0.1",
    "attacks": "--only deep",
    "choices": "--seeds 1 --visits 1.5 --budget 16 --tasks 2 --group 4 --epochs 0.02 --before 1"
    " --screen samples=2,first=1,at_least=0,at_most=2 --limit 1 --only resample screen+target_rate",
    "demo": "--seeds 1 --recipe small.toml --folder runs",
    "endpoint": "--rounds 1 --calls 2 --at-once 2 --rollouts 3 --turns 2",
    "evalplus": "--rounds 1 --every 100 --workers 1",
    "hostile": "--runs 40 --slots 2",
    "interpreter": "--open 5 --rounds 3",
    "intervals": "--runs 20",
    "judge": "--rounds 1 --workers 2",
    "languages": "--rounds 1 --step 80 --mutants 1 --simulate-only",
    "native": "--runs 20 --slots 2",
    "products": "--rounds 1",
    "serve": "--requests 100 --connections 4",
    "crowd": "--clients 6 --hostiles 2 --seconds 3 --pause 0.5 --turns 1",
    "tables": "tasks.jsonl",
    "viewer": "--rounds 1 --no-browser",
    "walls": "--rounds 1",
}
"""Options with which a benchmark takes some 10 seconds of CPU time or less."""
READS = {
    "attacks": ("humaneval", "mbpp", "humanevalplus", "mbppplus"),
    "evalplus": ("humanevalplus", "mbppplus"),
    "judge": ("humaneval",),
    "languages": ("verilog_eval",),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.data(*READS[name]) if name in READS else ())
     for name in SMALLEST],
)  # fmt: skip
def test_a_benchmark_ends_and_prints_at_its_smallest_size(name: str, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "tasks.jsonl").write_text(ROW)
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{name}", *SMALLEST[name].split()],
        capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path,
        env=os.environ | {"STEPS": "2", "PYTHONPATH": str(BENCH.parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_run_ends_where_its_screen_and_all_groups_have_spent_its_completions(
    tmp_path: Path,
) -> None:
    screen = {"results": [{"samples": 5}, {"samples": 3}]}
    (tmp_path / "screen").mkdir()
    (tmp_path / "screen" / "screen.json").write_text(json.dumps(screen))
    history = StageHistory("grpo", tmp_path, total_steps=9)
    history.add(0, {"eval/pass@1": 0.5})
    history.add(1, {"rollout/groups": 3.0})  # of two tasks: one group replaces another
    assert choices.spend(history, completions=8 + 12 + 8, tasks=2, group=4) == ""
    assert choices.spend(history, completions=8 + 12 + 7, tasks=2, group=4)


def test_a_choice_of_tasks_is_compared_with_uniform_seed_by_seed() -> None:
    passed = {("uniform", 0): 0.5, ("uniform", 1): 0.7, ("retire", 1): 0.9, ("retire", 0): 0.6}
    outcomes = [
        choices.Outcome(
            variant, 15, seed, rate, flat=0.25, steps=4, completions=96, screened=0, seconds=3
        )
        for (variant, seed), rate in passed.items()
    ]
    rows = [line.split(" | ")[:7] for line in choices.table(outcomes).splitlines()[2:]]
    assert rows == [
        ["| uniform", "2", "4", "0", "25", "60.0 ± 127.1", ""],
        ["| retire", "2", "4", "0", "25", "75.0 ± 190.6", "15.0 ± 63.5"],
    ]


def test_a_run_of_the_grid_of_choices_that_has_ended_is_not_run_again(tmp_path: Path) -> None:
    ended = choices.Outcome("retire", 1.5, 2, 0.5, 0.25, 4, 96, 0, 3.0)
    choices.result_file(tmp_path, "retire", 1.5, 2).write_text(json.dumps(asdict(ended)))
    grid = Namespace(
        folder=tmp_path, only=["retire"], visits=[1.5], seeds=3, minutes=0, budget=96, tasks=2,
        group=4, rate=3e-4, limit=None,
    )  # fmt: skip
    assert choices.run_grid(grid) == [ended]
    grid.budget = 48
    with pytest.raises(SystemExit, match="has other settings"):
        choices.run_grid(grid)


@pytest.mark.parametrize("variant", choices.VARIANTS)
def test_each_variant_of_the_grid_of_choices_has_settings_of_its_own(
    variant: str, tmp_path: Path
) -> None:
    grid = Namespace(
        budget=96, tasks=2, group=4, rate=3e-4, limit=None, screen="samples = 8, first = 4"
    )
    rl = choices.RL + choices.VARIANTS[variant]
    text = choices.settings(grid, rl, pool=8, seed=3, most=12)
    file = choices.write_settings(tmp_path / "run.toml", text)
    [stage] = load_plan(file).stages
    assert (stage.steps, stage.seed, stage.tasks.train) == (12, 3, ("mixed:train-8-3",))
    assert (stage.tasks.screen is not None) == ("screen" in variant)
    assert stage.algorithm.get("max_resamples", 0) == 2 * (variant == "resample")
    named = variant.rpartition("+")[2]
    choice = "uniform" if named in ("screen", "resample") else named
    assert stage.tasks.choice.get("name", "uniform") == choice


def test_a_run_that_is_killed_at_random_needs_vllm_and_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.chaos", "--python", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert {str(tmp_path / "none"), "--python"} <= {*done.stderr.split()}
