"""The KV cache that the engine's probe chooses for each model, and how exact decoding with it is.

    python -m bench.kv_caches [--model FOLDER ...]

Each model in float32 and bfloat16, without and with LoRA: the pretrained models given, and small
random ones of four architectures. In float32 the error is the largest difference of a logit from
that of a full forward pass, in standard deviations over the vocabulary. In bfloat16 it is the mean
error of a sampled token's log-probability against the same weights in float32, beside that of the
model's own full forward pass. LoRA is measured with noise on its weights, as the probe does.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from assay.config.sections import LoraSettings, PolicySettings
from assay.engines.torch.cache_probe import EXACT, TIMES_OWN, caches_of, choose_cache, errors_of
from assay.policy.adapters import with_adapter
from assay.policy.forward import perturbed
from bench.sizes import pretrained, table

ARCHITECTURES = "Llama", "Qwen3", "GPT2", "Gemma2"
SHAPE = {
    "vocab_size": 1024, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "pad_token_id": 0,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
COLUMNS = "cache", "error", "the model's own", "limit", "seconds of the probe"


def random_model(name: str, dtype: str) -> Any:
    """A small model with random weights, the same at each call."""
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SHAPE)
    model = transformers.AutoModelForCausalLM
    return model.from_config(config, dtype=getattr(torch, dtype))


def models(folders: list[str], dtype: str) -> Iterator[tuple[str, Any]]:
    """Each model with its name, one at a time."""
    for folder in folders:
        yield Path(folder).resolve().name, pretrained(folder).model(dtype)
    for name in ARCHITECTURES:
        yield f"random {name}", random_model(name, dtype)


def probe(model: Any) -> dict[str, str]:
    """What the probe chooses for a model, by column."""
    start = time.perf_counter()
    kind = choose_cache(model)
    seconds = time.perf_counter() - start
    with perturbed(model):
        error, own_error = errors_of(model, caches_of(model)[kind])
    cells = f"{error:.1e}", "", f"{EXACT:.0e}"
    if own_error is not None:
        cells = f"{error:.4f}", f"{own_error:.4f}", f"{TIMES_OWN * own_error:.4f}"
    return dict(zip(COLUMNS, (kind, *cells, f"{seconds:.2f}"), strict=True))


def main() -> None:
    """Probe every model, and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", nargs="+", metavar="FOLDER", default=[])
    arguments = parser.parse_args()
    rows = {}
    for dtype in ("float32", "bfloat16"):
        for name, model in models(arguments.model, dtype):
            row = f"{name}, {dtype}"
            rows[row] = probe(model.eval())
            adapted = with_adapter(model, PolicySettings(lora=LoraSettings()))
            rows[f"{row}, LoRA"] = probe(adapted.eval())
    threads = torch.get_num_threads()
    print(f"{threads} threads, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}")
    print(table(COLUMNS, rows))


if __name__ == "__main__":
    main()
