"""Architectures of transformers with random weights: the training forward and the in-process engine
give the log-probabilities of the model's own forward pass on each sequence alone, to 1e-4.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from assay.config.sections import TinySettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.torch import TorchEngine
from assay.errors import ModelError
from assay.policy.chat import open_chat
from assay.policy.forward import forward, layout_of
from assay.policy.load_model import Policy
from assay.policy.tiny import make_tiny
from assay.train.batch import to_batch
from assay.types import Sample
from tests.policies import TASKS

LONG = pytest.mark.long
WINDOW = 16
"""The sliding window of models with one, and the original context of models that extend theirs."""
BASE = {
    "vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
GPT = {**BASE, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
EXPERTS = {
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 24, "shared_expert_intermediate_size": 24, "n_shared_experts": 1,
}  # fmt: skip
LATENT = {
    "kv_lora_rank": 8, "q_lora_rank": 12, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8,
    "v_head_dim": 8, "num_key_value_heads": 4, "first_k_dense_replace": 1, "n_group": 1,
    "topk_group": 1,
}  # fmt: skip
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"], "head_dim": 8,
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}  # fmt: skip
MAMBA = {
    "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8,
    "mamba_dt_rank": 4, "use_mamba_kernels": False, "num_heads": 8, "head_dim": 8,
    "state_size": 8, "n_groups": 2, "chunk_size": 8,
}  # fmt: skip
JAMBA = {
    "attn_layer_period": 2, "attn_layer_offset": 1,
    "expert_layer_period": 2, "expert_layer_offset": 1,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
    "original_max_position_embeddings": WINDOW,
}  # fmt: skip
LONGROPE = {
    **YARN, "rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [4.0] * 4,
}  # fmt: skip
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
HEAD = {"head_dim": 8}
SLIDING = {"sliding_window": WINDOW}

# name, its configuration, its layout of short sequences and of those beyond the window
MODELS: list[tuple[str, dict[str, Any], str, str]] = [
    ("Llama", {}, "packed", "packed"),
    ("Llama", {"rope_parameters": YARN}, "packed", "packed"),
    ("Llama", {"rope_parameters": DYNAMIC, "max_position_embeddings": WINDOW}, "packed", "padded"),
    ("Mistral", {"sliding_window": None}, "packed", "packed"),
    ("Mistral", SLIDING, "packed", "padded"),
    ("Mixtral", EXPERTS, "packed", "packed"),
    ("Qwen2", {}, "packed", "packed"),
    ("Qwen2", {**SLIDING, "use_sliding_window": True, "max_window_layers": 1}, "packed", "padded"),
    ("Qwen3", HEAD, "packed", "packed"),
    ("Qwen2Moe", EXPERTS, "packed", "packed"),
    ("Qwen3Moe", EXPERTS, "packed", "packed"),
    ("Gemma", HEAD, "packed", "packed"),
    ("Gemma2", {**HEAD, **SLIDING}, "plain", "plain"),
    ("Gemma3Text", {**HEAD, **SLIDING}, "packed", "padded"),
    ("Phi", {}, "packed", "packed"),
    (
        "Phi3",
        {"rope_parameters": LONGROPE, "original_max_position_embeddings": WINDOW},
        "packed",
        "padded",
    ),
    ("Phimoe", {**EXPERTS, **SLIDING}, "packed", "padded"),
    ("GPT2", GPT, "packed", "packed"),
    ("GPTNeoX", {}, "packed", "packed"),
    ("GPTBigCode", GPT, "packed", "packed"),
    ("OPT", {"ffn_dim": 48, "word_embed_proj_dim": 32}, "packed", "packed"),
    ("Falcon", {}, "padded", "padded"),
    ("Falcon", {"alibi": True}, "padded", "padded"),
    ("Bloom", {"n_head": 4, "n_layer": 2}, "padded", "padded"),
    ("Starcoder2", SLIDING, "packed", "padded"),
    ("Olmo2", {}, "packed", "packed"),
    ("Olmo3", SLIDING, "packed", "padded"),
    ("Cohere", {}, "plain", "plain"),
    ("Granite", {"logits_scaling": 8.0}, "plain", "plain"),
    ("StableLm", {}, "padded", "padded"),
    ("DeepseekV2", {**EXPERTS, **LATENT}, "padded", "padded"),
    ("DeepseekV3", {**EXPERTS, **LATENT}, "padded", "padded"),
    ("Doge", {}, "padded", "padded"),
    ("SmolLM3", {}, "packed", "packed"),
    ("GptOss", {**EXPERTS, **HEAD, **SLIDING}, "padded", "padded"),
    ("Qwen3Next", {**EXPERTS, **LINEAR}, "padded", "padded"),
    ("Qwen3_5Text", LINEAR, "padded", "padded"),
    ("OlmoHybrid", LINEAR, "padded", "padded"),
    ("Mamba", {"state_size": 8}, "padded", "padded"),
    ("Mamba2", MAMBA, "padded", "padded"),
    ("Jamba", {**EXPERTS, **MAMBA, **JAMBA}, "padded", "padded"),
    ("Lfm2", {"layer_types": ["conv", "full_attention"]}, "padded", "padded"),
]
RARE: list[tuple[str, dict[str, Any], str, str]] = [
    ("Olmo", {}, "packed", "packed"),
    ("Olmoe", EXPERTS, "packed", "packed"),
    ("Glm4", HEAD, "packed", "packed"),
    ("Glm4Moe", {**EXPERTS, **LATENT, **HEAD}, "packed", "packed"),
    ("GraniteMoe", EXPERTS, "packed", "packed"),
    ("Nemotron", {}, "padded", "padded"),
    ("Persimmon", {}, "packed", "packed"),
    ("BioGpt", {}, "packed", "packed"),
    ("Ernie4_5", {}, "packed", "packed"),
    ("SeedOss", HEAD, "packed", "packed"),
    ("HunYuanDenseV1", HEAD, "packed", "packed"),
    ("Exaone4", SLIDING, "packed", "padded"),
    ("Cohere2", SLIDING, "plain", "plain"),
    ("Llama4Text", {**EXPERTS, **HEAD, "attention_chunk_size": WINDOW}, "plain", "plain"),
    ("GPTNeo", {**GPT, "num_layers": 2, "window_size": WINDOW,
                "attention_types": [[["global", "local"], 1]]}, "padded", "padded"),
    ("GPTJ", {**GPT, "rotary_dim": 4}, "padded", "padded"),
    ("CodeGen", {**GPT, "rotary_dim": 4}, "padded", "padded"),
    ("Mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2}, "padded", "padded"),
    ("DiffLlama", {}, "packed", "packed"),
    ("FalconMamba", {"state_size": 8}, "padded", "padded"),
    ("FalconH1", {**MAMBA, "mamba_d_ssm": 64}, "padded", "padded"),
    ("Bamba", {**MAMBA, "attn_layer_indices": [1]}, "padded", "padded"),
    ("MiniMax", {**EXPERTS, **LINEAR}, "padded", "padded"),
    ("MiniMaxM2", EXPERTS, "packed", "packed"),
    ("Zamba2", {
        "layers_block_type": ["mamba", "hybrid"] * 2, "num_hidden_layers": 4, "num_mem_blocks": 1,
        "mamba_d_state": 8, "mamba_headdim": 16, "n_mamba_heads": 4, "chunk_size": 8,
    }, "padded", "padded"),
]  # fmt: skip
NAMES = [f"{name}{number}" for number, (name, *_) in enumerate([*MODELS, *RARE])]
MARKS = [*([LONG] * (number % 2) for number in range(len(MODELS))), *([LONG] for _ in RARE)]
"""Half of the models are tried in `make test`, all in `make test-long`."""
CASES = [
    pytest.param(*case, marks=marks) for case, marks in zip([*MODELS, *RARE], MARKS, strict=True)
]


def make(name: str, changes: dict[str, Any]) -> Any:
    """A model with random weights, none of which is zero or one."""
    config = getattr(transformers, f"{name}Config")(**copy.deepcopy(BASE | changes))
    heads = "LMHeadModel" if name in ("GPT2", "Bert") else "ForCausalLM"
    kind = getattr(transformers, name.removesuffix("Text") + heads)
    torch.manual_seed(0)
    model = kind(config)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(0.2 * noise if parameter.dim() > 1 else parameter + 0.1 * noise)
    return model.eval()


def tokens(count: int, seed: int) -> tuple[int, ...]:
    draw = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(2, 290, (count,), generator=draw).tolist())


PROMPT = tokens(20, 0)


def sample(prompt: int, completion: int) -> Sample:
    return Sample(
        PROMPT[:prompt] + tokens(completion, completion),
        (False,) * prompt + (True,) * completion,
    )


SHORT = [sample(5, 4), sample(5, 7), sample(3, 6), sample(5, 1)]
MIXED = [sample(5, 40), sample(20, 11), sample(5, 7), sample(3, 6), sample(5, 30)]


def alone(model: Any, one: Sample) -> Tensor:
    """Log-probabilities of the trained tokens by an untouched copy of the model, which sees nothing
    but this sequence.
    """
    with torch.no_grad():
        logits = copy.deepcopy(model)(torch.tensor([one.tokens]), use_cache=False).logits[0]
    logprobs = torch.log_softmax(logits.float(), -1)
    return torch.stack([logprobs[t - 1, one.tokens[t]] for t, on in enumerate(one.mask) if on])


@pytest.mark.parametrize(("name", "changes", "short", "long"), CASES, ids=NAMES)
def test_every_sequence_gets_the_log_probabilities_that_it_has_alone(
    name: str, changes: dict[str, Any], short: str, long: str
) -> None:
    model = make(name, changes)
    untouched = copy.deepcopy(model)
    for samples, layout in ((SHORT, short), (MIXED, long), (SHORT, short)):
        batch = to_batch(samples, 0, torch.device("cpu"))
        assert layout_of(model, batch.tokens.shape[1]) == layout
        with torch.no_grad():
            logprobs = forward(model, batch).logprobs
        for row, one in enumerate(samples):
            expected = alone(untouched, one)
            assert torch.allclose(logprobs[row][batch.mask[row]], expected, rtol=0, atol=1e-4)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tokenizer")
    made = make_tiny(folder / "tiny", TASKS, TinySettings(vocabulary=300), 0)
    return transformers.AutoTokenizer.from_pretrained(made)


NOT_DECODED = {"MiniMax", "Zamba2"}
"""Models that decode other logits than they compute, with a cache of their own class or in
transformers: the engine refuses them by name."""


def rope_depends_on_length(changes: dict[str, Any]) -> bool:
    return changes.get("rope_parameters") in (DYNAMIC, LONGROPE)


def decoded(case: tuple[str, dict[str, Any], str, str], mark: Any = ()) -> Any:
    marks = [*mark]
    if rope_depends_on_length(case[1]):
        reason = "the engine decodes with the RoPE frequencies of the longest sequence in the batch"
        marks.append(pytest.mark.xfail(strict=True, reason=reason))
    return pytest.param(*case[:2], marks=marks)


@pytest.mark.parametrize(
    ("name", "changes"),
    map(decoded, [*MODELS, *RARE], MARKS),
    ids=NAMES,
)
def test_sampled_tokens_have_the_log_probabilities_of_the_model_alone_or_it_is_refused(
    name: str, changes: dict[str, Any], tokenizer: Any
) -> None:
    model = make(name, changes)
    model.generation_config.eos_token_id = None
    untouched = copy.deepcopy(model)
    policy = Policy(model, open_chat(tokenizer, "text", []), torch.device("cpu"), 0)
    prompts = [PROMPT[:5], PROMPT[:5], PROMPT[:3], PROMPT[:12]]

    async def generate() -> list[Any]:
        engine = TorchEngine(policy)
        await engine.load(policy, 1)
        requests = (GenerationRequest(prompt, seed) for seed, prompt in enumerate(prompts))
        return await asyncio.gather(*(engine.generate(one, Sampling(20)) for one in requests))

    if name in NOT_DECODED:
        with pytest.raises(ModelError, match=rf"model {name}ForCausalLM cannot.*'vllm'"):
            asyncio.run(generate())
        return
    for prompt, completion in zip(prompts, asyncio.run(generate()), strict=True):
        mask = (False,) * len(prompt) + (True,) * len(completion.tokens)
        expected = alone(untouched, Sample(prompt + completion.tokens, mask))
        assert torch.allclose(torch.tensor(completion.logprobs), expected, rtol=0, atol=1e-4)


def test_a_model_that_is_not_causal_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"'bert' is not causal.*use a causal language model"):
        layout_of(make("Bert", {}), 12)


def test_attention_is_the_models_own_again_where_packing_was_refused() -> None:
    model = make("Doge", {})
    assert layout_of(model, 12) == "padded"
    assert model.config._attn_implementation == "sdpa"


def test_padding_that_changes_the_results_makes_sequences_run_one_at_a_time() -> None:
    model = make("Llama", {})
    embed = model.model.embed_tokens.forward

    def shifted(ids: Tensor) -> Tensor:
        return embed(ids) + ids.shape[1]  # type: ignore[no-any-return]

    model.model.embed_tokens.forward = shifted
    batch = to_batch(SHORT, 0, torch.device("cpu"))
    logprobs = forward(model, batch).logprobs.detach()
    for row, one in enumerate(SHORT):
        assert torch.allclose(logprobs[row][batch.mask[row]], alone(model, one), atol=1e-4)


def test_the_layout_is_logged_once_in_words(caplog: pytest.LogCaptureFixture) -> None:
    from assay.policy.forward import _log_once

    _log_once.cache_clear()
    model = make("Mistral", SLIDING)
    with caplog.at_level("INFO"):
        for longest in (10, 12, 40, 50):
            layout_of(model, longest)
    assert caplog.messages == [
        "training forward of mistral: packed sequences (the fastest layout that gives the model's"
        " own numbers)",
        "training forward of mistral: padded sequences (sequences are longer than the attention"
        " window, 16)",
    ]


def test_new_adapters_count_while_layouts_are_tried_out_and_are_zero_afterwards() -> None:
    from peft import LoraConfig, get_peft_model

    from assay.policy.forward import perturbed

    torch.manual_seed(0)
    config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(make("Llama", {}), config)
    before, ids = model(torch.tensor([PROMPT])).logits, torch.tensor([PROMPT])
    with perturbed(model):
        assert not torch.allclose(model(ids).logits, before, atol=1e-3)
    assert torch.equal(model(ids).logits, before)
