"""The same training on models from disk: a Llama and a Qwen2 in Hugging Face format, full and
LoRA.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.config.load_settings import load_plan
from assay.config.sections import PolicySettings
from assay.policy.load_model import load_policy
from assay.train.stages import run_plan
from tests.end_to_end.recipes import write
from tests.policies import checkpoint

SETTINGS = """
name = "small"
trackers = ["jsonl"]
[tasks]
train = "drills:train"
limit = 12
[rollout]
tasks_per_step = 3
group_size = 4
max_tokens = 12
[evaluate]
tasks = "drills:test"
limit = 2
samples = 2
max_tokens = 12
[stages.sft]
steps = 2
algorithm.name = "sft"
dataset.batch_size = 8
optimizer = { lr = 1e-2 }
[stages.rl]
steps = 2
algorithm = { name = "reinforce", baseline = "none" }
rewards = { format = {}, length = { alpha = 1.0, on_failure = true } }
optimizer = { lr = 1e-2 }
"""


@pytest.mark.parametrize(
    "lora", [pytest.param(False, marks=pytest.mark.long), True], ids=["full", "lora"]
)
@pytest.mark.parametrize("kind", ["llama", pytest.param("qwen2", marks=pytest.mark.long)])
def test_a_model_directory_goes_through_sft_and_reinforcement(
    tmp_path: Path, kind: str, lora: bool
) -> None:
    from transformers import AutoModelForCausalLM

    model = checkpoint(tmp_path, kind)
    words = [
        "--folder",
        str(tmp_path / "runs"),
        "--stages.sft.policy.model",
        str(model),
        "--policy.device",
        "cpu",
    ]
    words += ["--policy.lora.rank", "4"] if lora else []
    outcome = run_plan(load_plan(write(tmp_path, SETTINGS), words))
    assert outcome.finished
    assert [one.name for one in outcome.evaluations] == ["sft", "rl"]
    folders = [outcome.folder / stage / "checkpoints" / "step_000002" for stage in ("sft", "rl")]
    assert outcome.model == folders[1]
    assert (folders[1] / "adapter_config.json").exists() == lora
    tokens = torch.arange(20).unsqueeze(0)
    with torch.no_grad():
        logits = [
            AutoModelForCausalLM.from_pretrained(folder).eval()(tokens).logits
            for folder in (model, *folders)
        ]
    assert not torch.allclose(logits[0], logits[1], atol=1e-4), "SFT changed the model"
    assert not torch.allclose(logits[1], logits[2], atol=1e-4), (
        "reinforcement went on from there and changed it again"
    )
    ours = load_policy(PolicySettings(model=str(folders[1]), device="cpu")).model.eval()
    with torch.no_grad():
        assert torch.allclose(ours(tokens).logits, logits[2], atol=1e-6)
