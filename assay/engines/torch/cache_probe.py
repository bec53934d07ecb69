"""Tries on a model, before it writes, whether a memory gives what reading everything again
gives.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from assay.engines.torch.fused import make_fused_decoder
from assay.engines.torch.kv_cache import KVCache
from assay.engines.torch.prefill import Prompt, TransformersCache, forward
from assay.errors import ModelError
from assay.registry import one_line

EXACT, COARSE = 2e-3, 0.15
"""Largest difference of a logit, in standard deviations over the vocabulary: of float32 weights,
and of fewer bits."""
LENGTHS = (7, 1, 4)
"""Tokens of the probe's prompts."""


def supports_kv_cache(model: Any) -> bool:
    """Whether `model` may write through KVCache; otherwise through TransformersCache. Raises ModelError when that
    is wrong too.
    """
    log, name = logging.getLogger(__name__), type(model).__name__
    why = _other_layers(model) or _difference(model, KVCache(model, make_fused_decoder(model)))
    if not why:
        log.info("engine: %s writes through slots", name)
        return True
    log.warning(
        "engine: %s does not write through slots but through its own cache, which is slower: %s",
        name,
        why,
    )
    if wrong := _difference(model, TransformersCache(model)):
        raise ModelError(f"model {name} cannot be decoded with its cache: {wrong}")
    return False


def _other_layers(model: Any) -> str:
    """What else than keys and values of all tokens the model's own cache holds."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    layers = {type(layer) for layer in DynamicCache(config=model.config).layers}
    return ", ".join(sorted(kind.__name__ for kind in layers - {DynamicLayer}))


@torch.inference_mode()
def _difference(model: Any, memory: KVCache | TransformersCache) -> str:
    """What `memory` gives otherwise than the model without a cache; empty when nothing."""
    vocabulary = model.get_input_embeddings().weight.shape[0]
    draw = torch.Generator().manual_seed(0)
    texts = [
        tuple(torch.randint(vocabulary, (length,), generator=draw).tolist()) for length in LENGTHS
    ]
    texts.insert(1, texts[0])
    most = EXACT if all(p.dtype == torch.float32 for p in model.parameters()) else COARSE
    try:
        logits = memory.add(texts, max(LENGTHS), 4)
        for number in range(3):
            if not (found := _worst(model, logits, texts)) <= most:
                return f"logits differ by {found:.2g} standard deviations"
            if number == 1:
                texts = [texts[row] for row in memory.drop([0, 2], None)]
            tokens = torch.randint(vocabulary, (len(texts),), generator=draw)
            texts = [(*text, token) for text, token in zip(texts, tokens.tolist(), strict=True)]
            logits = memory.step(tokens.to(model.device))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001  models raise anything where they do not know how they are used
        return one_line(error)
    return ""


def _worst(model: Any, logits: Tensor, texts: list[Prompt]) -> float:
    worst = torch.zeros(())
    for row, text in zip(logits, texts, strict=True):
        tokens = torch.tensor([text], device=model.device)
        positions = torch.arange(len(text), device=model.device).unsqueeze(0)
        expected = forward(model, tokens, torch.ones_like(tokens), positions, None)[0]
        worst = torch.maximum(worst, ((row - expected).abs().max() / expected.std()).cpu())
    return worst.item()
