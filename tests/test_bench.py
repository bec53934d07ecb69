"""The benchmarks start, or say in one line what they need."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from bench import generate, kv_caches
from bench.sides import alternate
from tests.policies import checkpoint

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
    assert names == [f"{kind}, {lever}" for kind in ("full", "LoRA") for lever in levers]


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
