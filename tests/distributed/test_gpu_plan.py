"""`assay plan --gpus` says what fits on GPUs that are not here, and what to change."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig
from typer.testing import CliRunner

from assay.cli import app
from assay.commands.plan import _gpu_lines as gpu_lines
from assay.config.load_settings import merge
from assay.config.sections import RunSettings
from assay.config.toml_files import Table
from assay.distributed.cards import GB, RESERVE, Card, Gpus, parse_gpus
from assay.distributed.gpu_plan import StageOnGpus, on_gpus
from assay.errors import SettingsError
from assay.policy.layers import inner_size

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
import make_gpu_table as page

LONG = 32_768
IN_PROCESS = {"name": "torch", "kv_cache_tokens": 4096}
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


def settings_of(model: str, **changes: Any) -> Table:
    return {
        "stage": "grpo", "steps": 1, "algorithm": {"name": "grpo"},
        "tasks": {"train": ["drills:train"]}, "engine": ENGINE,
        "policy": {"model": model, "dtype": "bfloat16", "gradient_checkpointing": True},
    } | changes  # fmt: skip


def run(model: str, longest: int = LONG, gpus: str = "8xH100", **changes: Any) -> StageOnGpus:
    settings = RunSettings.model_validate(settings_of(model, **changes))
    return on_gpus(settings, parse_gpus(gpus), longest)


def test_a_7b_model_on_four_learner_gpus_fits_with_nothing_whole_beside_its_shards(
    model: str,
) -> None:
    planned = run(model)
    assert (planned.ranks, planned.parameters) == (4, 7_615_616_512)
    numbers = planned.parameters
    assert planned.leader == planned.rank, "servers are sent a copy in host memory"
    assert numbers <= planned.leader["gradients"] < 1.5 * numbers, "a quarter of four bytes each"
    assert planned.leader["optimizer"] == pytest.approx(8 * numbers / 4, rel=1e-6)
    assert planned.peak < planned.room == 80 * GB - RESERVE
    assert planned.problems == ()


def test_a_7b_model_on_two_learner_gpus_does_not_fit_and_is_told_what_does(model: str) -> None:
    planned = run(model, gpus="6xH100", engine=ENGINE | {"gpus": [2, 3, 4, 5]})
    assert planned.ranks == 2
    assert planned.peak > planned.room
    (problem,) = planned.problems
    assert "4 GPUs for the learner" in problem
    assert "policy.lora = { rank = 16 }" in problem
    assert "gradient_checkpointing" not in problem, "it is set"


def test_rank_0_has_the_whole_weights_once_before_they_are_sharded(model: str) -> None:
    planned = run(model, 1024, gpus="132xH100", policy={
        "model": model, "dtype": "bfloat16", "lora": {"rank": 4}, "gradient_checkpointing": True,
    })  # fmt: skip
    assert planned.ranks == 128
    assert planned.leader["whole copy for the engine"] == planned.peak
    assert planned.peak == pytest.approx(2 * 7_615_616_512, rel=0.01)
    assert sum(planned.rank.values()) < planned.peak


CARD = Card("small", 4, 100)


@pytest.mark.parametrize(
    ("count", "longest", "changes"),
    [
        (2, 4096, {}),
        (8, 4096, {"learner": {"micro_batch_tokens": LONG}}),
        (4, 10_000, {"policy": {"lora": {"rank": 8}, "gradient_checkpointing": False}}),
    ],
)
def test_each_way_out_that_is_named_fits_when_it_is_taken(
    small: str, count: int, longest: int, changes: Table
) -> None:
    table, gpus = merge(settings_of(small, engine=IN_PROCESS), changes), Gpus(count, CARD)
    (problem,) = on_gpus(RunSettings.model_validate(table), gpus, longest).problems
    ways = problem.partition("It fits with ")[2].split("; or ")
    for way in ways:
        changed, enough = taken(way, table, gpus)
        assert on_gpus(RunSettings.model_validate(changed), enough, longest).problems == (), way


def taken(way: str, table: Table, gpus: Gpus) -> tuple[Table, Gpus]:
    """The settings and GPUs after what the words of a way out say."""
    for words in re.split(" and | with ", way):
        if count := re.fullmatch(r"(\d+) GPUs for the learner", words):
            gpus = replace(gpus, count=int(count[1]))
        else:
            table = merge(table, tomllib.loads(words))
    return table, gpus


def test_where_no_change_helps_a_whole_sentence_says_what_to_take(small: str) -> None:
    settings = RunSettings.model_validate(settings_of(small, engine=IN_PROCESS))
    (problem,) = on_gpus(settings, Gpus(1, replace(CARD, memory_gb=2)), LONG).problems
    assert problem.endswith("). Take a smaller policy.model or larger GPUs")


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
        changes: dict[str, Any] = {
            "longest": 1024, "rollout": {"tasks_per_step": tasks, "group_size": 8},
        }  # fmt: skip
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


@pytest.mark.parametrize(
    ("gpus", "engine"),
    [
        ("8xH100", {}), ("16xH100", {}), ("16xH100", {"gpus": [15]}), ("1xH100", {"gpus": [0]}),
        ("2xH100", {"data_parallel": 2}), ("2xH100", {"data_parallel": 2, "gpus": [0, 1]}),
        ("2xH100", {"tensor_parallel": 2}), ("1xH100", {"data_parallel": 2}),
        ("16xH100", {"data_parallel": 8, "gpus": [*range(8)]}), ("1xH100", {"tensor_parallel": 2}),
        ("4xH100", {"data_parallel": 2, "tensor_parallel": 2}),
    ],
)  # fmt: skip
def test_where_servers_are_misplaced_the_settings_that_are_named_place_them(
    small: str, gpus: str, engine: Table
) -> None:
    misplaced = settings_of(small, engine={"name": "vllm"} | engine)
    (problem,) = run(small, 1024, gpus, engine=misplaced["engine"]).problems
    for words in re.sub("^set ", "", problem.partition(": ")[2]).split(" and "):
        if words == "leave engine.gpus out":
            del misplaced["engine"]["gpus"]
        else:
            misplaced = merge(misplaced, tomllib.loads(words.removeprefix("set ")))
    placed = run(small, 1024, gpus, engine=misplaced["engine"])
    assert placed.problems == (), problem
    assert placed.ranks >= 1


MIXTURES: list[tuple[str, dict[str, int], int]] = [
    ("mixtral", {"intermediate_size": 14_336, "num_experts_per_tok": 2}, 28_672),
    ("olmoe", {"intermediate_size": 1024, "num_experts_per_tok": 8}, 8192),
    ("qwen2_moe", {"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
                   "num_experts_per_tok": 4}, 4 * 1408 + 5632),
    ("deepseek_v3", {"moe_intermediate_size": 2048, "n_shared_experts": 1,
                     "num_experts_per_tok": 8}, 9 * 2048),
    ("qwen2", {"intermediate_size": 4864}, 4864),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "sizes", "inner"), MIXTURES)
def test_of_a_mixture_all_experts_of_one_token_are_counted(
    kind: str, sizes: dict[str, int], inner: int
) -> None:
    assert inner_size(AutoConfig.for_model(kind, **sizes)) == inner


def test_no_prefill_is_estimated_for_a_mixture_of_experts(tmp_path: Path) -> None:
    sizes = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 512,
             "shared_expert_intermediate_size": 512}  # fmt: skip
    model = write_small(tmp_path / "mixture", model_type="qwen2_moe", **sizes)
    sft: dict[str, Any] = {
        "stage": "sft", "algorithm": {"name": "sft"}, "evaluate": {"tasks": ["drills:test"]},
    }  # fmt: skip
    planned = run(str(model), 1024, **sft)
    assert planned.server
    assert planned.server.prefill_seconds is None
    assert "prefills is not estimated for a mixture of experts" in gpu_lines(planned)
    with pytest.raises(SettingsError, match="different experts"):
        run(str(model), 1024)


def test_what_a_run_refuses_does_not_fit(small: str) -> None:
    with pytest.raises(SettingsError, match="nothing to train"):
        run(small, policy={"model": small, "quantize": "nf4"})
    with pytest.raises(SettingsError, match="every advantage of grpo is 0"):
        run(small, rollout={"group_size": 1, "tasks_per_step": 8})


def test_an_engine_in_the_learners_process_has_its_cache_on_rank_0(model: str) -> None:
    planned = run(model, 4096, engine={"name": "torch"}, rollout={"max_staleness": 1})
    assert planned.ranks == 8
    assert planned.leader["KV cache"] == 65_536 * 2 * 28 * 4 * 128 * 2
    assert planned.leader["engine's copy"] == pytest.approx(2 * 7_615_616_512, rel=1e-6)
    assert "whole copy for the engine" not in planned.leader, "it is in host memory"
    assert planned.server is None
    synchronous = run(model, 4096, engine={"name": "torch"})
    assert synchronous.leader["whole copy for the engine"] == planned.leader["engine's copy"]
    assert "engine's copy" not in synchronous.leader
    long = run(model, gpus="4xH100", engine={"name": "torch", "kv_cache_tokens": 262_144},
               rollout={"max_staleness": 1})  # fmt: skip
    assert "rollout.max_staleness = 0" in long.problems[0]


@pytest.mark.parametrize(
    ("text", "why"), [("H100", "is not like 8xH100"), ("0xH100", "is not like"),
                      ("8xH10", "did you mean 'H100'"), ("9" * 9 + "xH100", "at most 4,096"),
                      ("4097xH100", "at most 4,096"),
                      ("8xA100", "did you mean 'A100-40' or 'A100-80'")],
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
        'engine = { name = "vllm", data_parallel = 4, gpus = [2, 3, 4, 5] }\n'
    )
    words = ["plan", str(tmp_path / "plan.toml"), "--gpus", "6xH100"]
    done = CliRunner().invoke(app, [*words, "--longest", str(LONG)])
    assert done.exit_code == 1, done.output
    assert "the learner does not fit: rank 0 needs" in done.stdout
    assert "a server's GPU" in done.stdout
    fitting = CliRunner().invoke(app, [*words, "--policy.lora.rank", "16", "--json"])
    assert fitting.exit_code == 0, fitting.output
    told = json.loads(fitting.stdout)
    assert told["fits"]
    assert 512 < told["stages"][0]["longest"] < 2048, "a prompt, and a reply of up to 512"


@pytest.mark.parametrize(
    ("words", "why"), [
        (["--gpus", "8xA100"], "unknown card"), (["--longest", "1024"], "--longest is for --gpus"),
        (["--gpus", "8xH100", "--quick"], "--quick has no effect"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_followed_are_refused_before_the_settings_are_read(
    words: list[str], why: str
) -> None:
    done = CliRunner().invoke(app, ["plan", "there_is_no_such_file.toml", *words])
    assert isinstance(done.exception, SettingsError)
    assert why in str(done.exception)


@pytest.mark.long
def test_the_table_in_the_docs_is_what_the_arithmetic_gives() -> None:
    text = page.PAGE.read_text()
    assert page.render(text) == text
