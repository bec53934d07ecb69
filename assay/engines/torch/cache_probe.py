"""Before decoding, check that the KV cache gives the same logits as a full forward pass."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.engines.torch.fused import FusedDecoder, is_fusible
from assay.engines.torch.kv_cache import KVCache
from assay.engines.torch.prefill import Prompt, TransformersCache, next_logits
from assay.errors import ModelError
from assay.policy.forward import perturbed
from assay.registry import one_line

EXACT, COARSE = 2e-3, 0.15
"""Largest allowed difference of a logit, in standard deviations over the vocabulary: for float32
weights, and for less precise ones."""
LENGTHS = (7, 1, 4)
"""Tokens of the probe's prompts."""
SHORT = 4
"""Those of up to so many are copied for each row, and the longest is shared."""
MakeCache = Callable[[], KVCache | TransformersCache]
log = logging.getLogger(__name__)


def choose_cache(model: Any) -> str:
    """The fastest way to decode `model` that gives the logits of a full forward pass: `fused` (KV
    cache and fused decoder), `kv_cache`, or `transformers` (its DynamicCache).

    Raises ModelError if none does.
    """
    name, why = type(model).__name__, ""
    caches: dict[str, MakeCache] = {"transformers": lambda: TransformersCache(model)}
    if not _has_other_layers(model):
        caches = {"kv_cache": lambda: KVCache(model, short=SHORT)} | caches
        if is_fusible(model):
            caches = {"fused": lambda: KVCache(model, FusedDecoder(model), SHORT)} | caches
    with perturbed(model):
        for kind, make_cache in caches.items():
            if not (why := _difference(model, make_cache)):
                log.info("engine: %s decodes with the cache %r", name, kind)
                return kind
            log.warning("engine: %s does not decode with the cache %r: %s", name, kind, why)
    raise ModelError(
        f"model {name} cannot be decoded in this process: use engine.name = 'vllm' ({why})"
    )


def _has_other_layers(model: Any) -> bool:
    """Whether the model's own cache holds something else than keys and values of all tokens, such
    as a recurrent state or a sliding window.
    """
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    return any(
        type(layer) is not DynamicLayer for layer in DynamicCache(config=model.config).layers
    )


@torch.inference_mode()
def _difference(model: Any, make_cache: MakeCache) -> str:
    """How decoding with the cache differs from full forward passes; empty if it does not."""
    vocabulary = model.get_input_embeddings().weight.shape[0]
    generator = torch.Generator().manual_seed(0)
    texts = [
        tuple(torch.randint(vocabulary, (length,), generator=generator).tolist())
        for length in LENGTHS
    ]
    texts.insert(1, texts[0])
    allowed = EXACT if all(p.dtype == torch.float32 for p in model.parameters()) else COARSE
    try:
        cache = make_cache()
        logits = cache.add(texts, max(LENGTHS), 4)
        for number in range(3):
            if not (worst := _worst(model, logits, texts)) <= allowed:
                return f"logits differ by {worst:.2g} standard deviations"
            if number == 1:
                texts = [texts[row] for row in cache.drop([0, 2], None)]
            tokens = torch.randint(vocabulary, (len(texts),), generator=generator)
            texts = [(*text, token) for text, token in zip(texts, tokens.tolist(), strict=True)]
            logits = cache.step(tokens.to(model.device))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001  a model that does not know this cache raises anything
        return one_line(error)
    return ""


def _worst(model: Any, logits: Tensor, texts: list[Prompt]) -> float:
    worst = torch.zeros(())
    for row, text in zip(logits, texts, strict=True):
        tokens = torch.tensor([text], device=model.device)
        positions = torch.arange(len(text), device=model.device).unsqueeze(0)
        expected = next_logits(model, tokens, torch.ones_like(tokens), positions, None)[0]
        worst = torch.maximum(worst, ((row - expected).abs().max() / expected.std()).cpu())
    return worst.item()
