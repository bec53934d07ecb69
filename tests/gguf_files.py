"""Writes small random GGUF files, as llama.cpp's converter names and orders things."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy
from gguf import GGMLQuantizationType, GGUFWriter, quants

from tests.policies import checkpoint

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}<assistant>"
NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "model.layers": "blk",
}  # fmt: skip


def llama_gguf(
    folder: Path, kind: str = "Q8_0", metadata: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Path, Any]:
    """A tiny Llama as a GGUF file whose matrices are quantised, and the model before that.

    `metadata` changes the file's: a value of None leaves a key out.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = checkpoint(folder, "llama")
    model, tokenizer = (
        one.from_pretrained(source) for one in (AutoModelForCausalLM, AutoTokenizer)
    )
    config, file = model.config, folder / f"tiny-{kind}.gguf"
    writer = GGUFWriter(file, "llama")
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda one: one[1])
    special = set(tokenizer.all_special_tokens)
    own: dict[str, Any] = {
        "llama.context_length": config.max_position_embeddings,
        "llama.embedding_length": config.hidden_size,
        "llama.feed_forward_length": config.intermediate_size,
        "llama.block_count": config.num_hidden_layers,
        "llama.attention.head_count": config.num_attention_heads,
        "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.rope.dimension_count": config.head_dim,
        "llama.vocab_size": config.vocab_size,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [token for token, _ in vocabulary],
        "tokenizer.ggml.token_type": [3 if token in special else 1 for token, _ in vocabulary],
        "tokenizer.ggml.merges": [
            " ".join(pair) for pair in _model_of(tokenizer)["merges"]
        ],
        "tokenizer.ggml.eos_token_id": tokenizer.eos_token_id,
        "tokenizer.ggml.padding_token_id": tokenizer.pad_token_id,
        "tokenizer.chat_template": TEMPLATE,
    }  # fmt: skip
    for key, value in (own | dict(metadata)).items():
        match value:
            case None:
                continue
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case str():
                writer.add_string(key, value)
            case _:
                writer.add_array(key, value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    writer.add_float32("llama.rope.freq_base", 10_000.0)
    for name, tensor in model.state_dict().items():
        _add(writer, name, tensor.numpy(), kind, config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file, model


def _model_of(tokenizer: Any) -> Any:
    return json.loads(tokenizer.backend_tokenizer.to_str())["model"]


def _add(writer: Any, name: str, values: Any, kind: str, config: Any) -> None:
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for part, count in heads.items():
        if part in name:  # llama.cpp keeps the two halves of a rotation side by side
            halves = values.reshape(count, 2, -1, values.shape[1])
            values = halves.swapaxes(1, 2).reshape(values.shape)
    if values.ndim == 1 or kind == "F32":
        writer.add_tensor(name, values.astype(numpy.float32))
        return
    quantised = GGMLQuantizationType[kind]
    writer.add_tensor(name, quants.quantize(values, quantised), raw_dtype=quantised)
