"""`assay plan --gpus` says what fits on GPUs that are not here, and what to change."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.config.sections import RunSettings
from assay.distributed.cards import GB, RESERVE, parse_gpus
from assay.distributed.gpu_plan import StageOnGpus, on_gpus
from assay.errors import SettingsError

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
import make_gpu_table as page

LONG = 32_768
ENGINE = {"name": "vllm", "data_parallel": 4, "gpus": [4, 5, 6, 7]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The configuration of Qwen2.5-Coder-7B, and nothing else."""
    return str(page.write_config(tmp_path_factory.mktemp("7B"), "7B"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The configuration of a model of 2 wide layers, whose tensors are soon counted."""
    return str(write_small(tmp_path_factory.mktemp("small")))


def write_small(folder: Path, **changes: object) -> Path:
    """A `config.json` with changes."""
    folder.mkdir(exist_ok=True)
    table = {
        "model_type": "qwen2", "hidden_size": 2048, "num_hidden_layers": 2, "vocab_size": 4096,
        "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 8192,
        "max_position_embeddings": 262_144,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(table | changes))
    return folder


def run(model: str, longest: int = LONG, gpus: str = "8xH100", **changes: Any) -> StageOnGpus:
    table = {
        "stage": "grpo", "steps": 1, "algorithm": {"name": "grpo"},
        "tasks": {"train": ["drills:train"]}, "engine": ENGINE,
        "policy": {"model": model, "dtype": "bfloat16", "gradient_checkpointing": True},
    }  # fmt: skip
    return on_gpus(RunSettings.model_validate(table | changes), parse_gpus(gpus), longest)


def test_a_7b_model_on_four_learner_gpus_does_not_fit_and_is_told_what_does(model: str) -> None:
    planned = run(model)
    assert (planned.ranks, planned.parameters) == (4, 7_615_616_512)
    numbers = planned.parameters
    assert planned.leader["whole copy for the engine"] == pytest.approx(2 * numbers, rel=1e-6)
    assert planned.leader["gradients"] >= 4 * numbers, "whole, in float32"
    assert planned.leader["optimizer"] == pytest.approx(8 * numbers / 4, rel=1e-6)
    assert planned.peak > planned.room == 80 * GB - RESERVE
    (problem,) = planned.problems
    assert "16 GPUs for the learner" in problem
    assert "policy.lora = { rank = 16 }" in problem
    assert "gradient_checkpointing" not in problem, "it is set"


def test_each_way_out_that_is_named_fits(model: str) -> None:
    adapted = {"model": model, "dtype": "bfloat16", "gradient_checkpointing": True}
    assert run(model, policy=adapted | {"lora": {"rank": 16}}).problems == ()
    assert run(model, gpus="20xH100").problems == ()
    assert run(model, gpus="8xH200").problems == ()
    short = run(model, 4096, "12xH100", learner={"micro_batch_tokens": LONG})
    assert "learner.micro_batch_tokens = 4096" in short.problems[0]
    cut = run(model, 4096, "12xH100", learner={"micro_batch_tokens": 4096})
    assert cut.problems == ()
    unchecked = run(model, policy=adapted | {"gradient_checkpointing": False, "lora": {"rank": 16}})
    assert "policy.gradient_checkpointing = true" in unchecked.problems[0]


def test_servers_are_counted_by_heads_layers_and_weights(model: str) -> None:
    server = run(model).server
    assert server
    assert server.bytes_per_token == 2 * 28 * 4 * 128 * 2
    assert server.kv_cache == 65_536 * server.bytes_per_token
    assert server.weights == pytest.approx(2 * 7_615_616_512, rel=1e-6)
    assert (server.fits, server.at_once, server.rollouts) == (True, 2, 64)
    split = run(model, engine=ENGINE | {"data_parallel": 2, "tensor_parallel": 2}).server
    assert split
    assert split.weights == server.weights // 2
    assert split.kv_cache == server.kv_cache, "the argument is of one GPU"
    assert split.kv_tokens == 2 * 65_536, "each GPU has half the heads"


def test_a_prefill_takes_two_operations_a_parameter_and_attention(model: str) -> None:
    server = run(model).server
    assert server
    operations = 65_536 * (2 * 7_615_616_512 + 4 * 28 * 3584 * LONG / 2)
    assert server.prefill_seconds == pytest.approx(operations / (0.5 * 989e12), rel=1e-3)


def test_a_kv_cache_that_is_too_small_is_refused_or_noted(model: str) -> None:
    small = run(model, engine=ENGINE | {"kv_cache_tokens": 16_384})
    assert any("set engine.kv_cache_tokens to at least 32768" in why for why in small.problems)
    (note,) = run(model).notes
    assert "holds 2 of the 64 rollouts" in note
    assert "engine.kv_cache_tokens = " in note
    large = run(model, engine=ENGINE | {"kv_cache_tokens": 4_000_000})
    assert any("lower engine.kv_cache_tokens to" in why for why in large.problems)


SPLIT = {"name": "vllm", "tensor_parallel": 4, "gpus": [4, 5, 6, 7]}


def test_a_rollout_that_is_longer_than_a_servers_context_is_refused(small: str) -> None:
    for cached, fits in ((LONG, True), (LONG - 1, False)):
        planned = run(small, engine=SPLIT | {"kv_cache_tokens": cached})
        assert planned.server
        assert planned.server.kv_tokens == 4 * cached, "each GPU has a quarter of the heads"
        assert (not planned.problems) is fits, "one rollout may have as many as the setting says"
    (problem,) = run(small, 300_000, engine=SPLIT | {"kv_cache_tokens": 400_000}).problems
    assert "the model's context 262,144" in problem


def test_the_cache_that_is_named_holds_the_rollouts_that_are_named(small: str) -> None:
    advice = re.compile(r"engine.kv_cache_tokens = (\d+) holds (\d+)")
    for tasks, most in ((8, 64), (64, 256)):  # 512 rollouts at once are more than a server runs
        changes = {"longest": 1024, "rollout": {"tasks_per_step": tasks, "group_size": 8}}
        few = run(small, engine=SPLIT | {"kv_cache_tokens": 2048}, **changes)
        (note,) = few.notes
        found = advice.search(note)
        assert found
        setting, count = map(int, found.groups())
        assert (setting, count) == (most * 1024 // 4, most)
        more = run(small, engine=SPLIT | {"kv_cache_tokens": setting}, **changes)
        assert more.server
        assert more.server.at_once == count
        less = run(small, engine=SPLIT | {"kv_cache_tokens": setting - 1}, **changes)
        assert less.server
        assert less.server.at_once == count - 1
    assert not advice.search(more.notes[0]), "no larger cache helps"
    assert "never runs more than 256 at once" in more.notes[0]


def test_servers_without_gpus_of_their_own_are_refused(model: str) -> None:
    planned = run(model, engine={"name": "vllm"})
    assert planned.ranks == 8
    assert "engine.gpus = [7]" in planned.problems[0]
    beyond = run(model, gpus="4xH100")
    assert "engine.gpus names GPU 4" in beyond.problems[0]


def test_an_engine_in_the_learners_process_has_its_cache_on_rank_0(model: str) -> None:
    planned = run(model, 4096, engine={"name": "torch"}, rollout={"max_staleness": 1})
    assert planned.ranks == 8
    assert planned.leader["KV cache"] == 65_536 * 2 * 28 * 4 * 128 * 2
    assert planned.leader["engine's copy"] == planned.leader["whole copy for the engine"]
    assert "rollout.max_staleness = 0" in planned.problems[0]
    assert run(model, 4096, engine={"name": "torch"}).problems == ()
    assert planned.server is None


@pytest.mark.parametrize(
    ("text", "why"), [("H100", "is not like 8xH100"), ("0xH100", "is not like"),
                      ("8xH10", "did you mean 'H100'")],
)  # fmt: skip
def test_a_text_that_names_no_gpus_is_refused(text: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        parse_gpus(text)


def test_the_command_needs_a_configuration_alone_and_exits_with_1_where_nothing_fits(
    model: str, tmp_path: Path
) -> None:
    (tmp_path / "plan.toml").write_text(
        f'policy = {{ model = "{model}", dtype = "bfloat16", gradient_checkpointing = true }}\n'
        'tasks.train = "drills:train"\nalgorithm.name = "grpo"\nsteps = 1\n'
        'engine = { name = "vllm", data_parallel = 4, gpus = [4, 5, 6, 7] }\n'
    )
    words = ["plan", str(tmp_path / "plan.toml"), "--gpus", "8xH100"]
    done = CliRunner().invoke(app, [*words, "--longest", str(LONG)])
    assert done.exit_code == 1, done.output
    assert "the learner does not fit: rank 0 needs" in done.stdout
    assert "a server's GPU" in done.stdout
    fitting = CliRunner().invoke(app, [*words, "--policy.lora.rank", "16", "--json"])
    assert fitting.exit_code == 0, fitting.output
    told = json.loads(fitting.stdout)
    assert told["fits"]
    assert 512 < told["stages"][0]["longest"] < 2048, "a prompt, and a reply of up to 512"


def test_the_table_in_the_docs_is_what_the_arithmetic_gives() -> None:
    text = page.PAGE.read_text()
    assert page.render(text) == text
