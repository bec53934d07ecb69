"""Before decoding, check that the KV cache gives the same logits as a full forward pass."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from assay.engines.torch.fused import FusedDecoder, is_fusible
from assay.engines.torch.kv_cache import KVCache
from assay.engines.torch.prefill import Prompt, TransformersCache
from assay.errors import ModelError
from assay.policy.forward import perturbed
from assay.registry import one_line

EXACT = 2e-3
"""With float32 weights: the largest allowed difference of a logit from that of a full forward pass,
in standard deviations over the vocabulary."""
TIMES_OWN = 2.0
"""With less precise weights: the allowed mean error of a sampled token's log-probability, over that
of the model's own full forward pass. Both are errors against the same weights in float32."""
LENGTHS = (7, 7, 1, 4)
"""Tokens of the probe's prompts. The first two are equal."""
ENDING = (0, 2)
"""The rows that end after their first token."""
STEPS = 6
"""Tokens that are sampled after the others."""
SUFFIX = 4
"""The last tokens of each text, which are prefilled once more."""
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
    with perturbed(model):
        for kind, make_cache in caches_of(model).items():
            if not (why := _difference(model, make_cache)):
                log.info("engine: %s decodes with the cache %r", name, kind)
                return kind
            log.warning("engine: %s does not decode with the cache %r: %s", name, kind, why)
    raise ModelError(
        f"model {name} cannot be decoded in this process: use engine.name = 'vllm' ({why})"
    )


def caches_of(model: Any) -> dict[str, MakeCache]:
    """The ways to decode that `model` may have, fastest first."""
    caches: dict[str, MakeCache] = {"transformers": lambda: TransformersCache(model)}
    if not _has_other_layers(model):
        caches = {"kv_cache": lambda: KVCache(model, short=SHORT)} | caches
        if is_fusible(model):
            caches = {"fused": lambda: KVCache(model, FusedDecoder(model), SHORT)} | caches
    return caches


def _has_other_layers(model: Any) -> bool:
    """Whether the model's own cache holds something else than keys and values of all tokens, such
    as a recurrent state or a sliding window.
    """
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    return any(
        type(layer) is not DynamicLayer for layer in DynamicCache(config=model.config).layers
    )


def _difference(model: Any, make_cache: MakeCache) -> str:
    """How decoding with the cache differs from full forward passes; empty if it does not."""
    try:
        error, usual = errors_of(model, make_cache)
    except torch.OutOfMemoryError:
        raise
    except Exception as raised:  # noqa: BLE001  a model that does not know this cache raises anything
        return one_line(raised)
    if usual is None:
        return "" if error <= EXACT else f"logits differ by {error:.2g} standard deviations"
    log.info("engine: log-probabilities are off by %.3f, the model's own by %.3f", error, usual)
    return "" if error <= TIMES_OWN * usual else f"log-probabilities are off by {error:.2g}"


@torch.inference_mode()
def errors_of(model: Any, make_cache: MakeCache) -> tuple[float, float | None]:
    """With float32 weights, the largest difference of a logit with the cache, in standard
    deviations; and None. Else the mean error of a sampled token's log-probability; and that of the
    model's own full forward pass.
    """
    logits, texts = _decode(model, make_cache())
    full = _full_forward(model, texts)
    dtypes = {weight.dtype for weight in model.parameters() if weight.is_floating_point()}
    if dtypes == {torch.float32}:  # beside those that are quantized
        return float(((logits - full).abs().amax(-1) / full.std(-1)).max()), None
    with _float32_weights(model):
        exact = _full_forward(model, texts)
    return _error(logits, exact), _error(full, exact)


class _Rollout:
    """One whose last prompt is all that it had so far."""


def _decode(model: Any, cache: KVCache | TransformersCache) -> tuple[Tensor, list[Prompt]]:
    """Sample tokens after each prompt, of which two end early; then prefill the others' last tokens
    behind those that are kept: [N, V] logits, and the texts.
    """
    vocabulary = model.get_input_embeddings().weight.shape[0]
    generator = torch.Generator().manual_seed(0)
    texts = [
        tuple(torch.randint(vocabulary, (length,), generator=generator).tolist())
        for length in LENGTHS[1:]
    ]
    texts.insert(0, texts[0])
    rollouts, running = [_Rollout() for _ in texts], list(range(len(LENGTHS)))
    logits = [[row] for row in cache.add(texts, max(LENGTHS), STEPS, rollouts)]
    for number in range(STEPS):
        if number == 1:
            running = [running[row] for row in cache.drop(dict.fromkeys(ENDING, ()), None)]
        last = torch.stack([logits[row][-1] for row in running])
        noise = torch.empty(last.shape).exponential_(generator=generator)
        tokens = (last.softmax(-1).cpu() / noise).argmax(-1)  # an exponential race samples a token
        new = cache.step(tokens.to(model.device)).clone()  # a CUDA graph's next step overwrites it
        for row, token, after in zip(running, tokens.tolist(), new, strict=True):
            texts[row] = (*texts[row], token)
            logits[row].append(after)
    whole, owners = zip(*((texts[row], rollouts[row]) for row in running), strict=True)
    cache.drop({number: text[:-SUFFIX] for number, text in enumerate(whole)}, None)
    for row, after in zip(running, cache.add(whole, max(map(len, whole)), 0, owners), strict=True):
        logits[row][-1] = after
    return torch.cat([torch.stack(rows) for rows in logits]), texts


def _full_forward(model: Any, texts: Sequence[Prompt]) -> Tensor:
    """[N, V] logits of the tokens after each of LENGTHS, of one forward pass for each text."""
    per_row = []
    for text, length in zip(texts, LENGTHS, strict=True):
        tokens = torch.tensor([text], device=model.device)
        positions = torch.arange(len(text), device=model.device).unsqueeze(0)
        out = model(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            position_ids=positions,
            use_cache=False,
        )
        per_row.append(out.logits[0, length - 1 :].float())
    return torch.cat(per_row)


def _error(logits: Tensor, exact: Tensor) -> float:
    """The mean error of a sampled token's log-probability: its expectation under `exact`."""
    expected = exact.log_softmax(-1)
    errors = (logits.log_softmax(-1) - expected).abs()
    return float((expected.exp() * errors).sum(-1).mean())


@contextmanager
def _float32_weights(model: Any) -> Iterator[None]:
    """Meanwhile, each module computes with its weights in float32: a copy that lives as long as
    its call.
    """
    hooks = []
    for module in model.modules():
        rounded = {
            parameter: parameter.data
            for parameter in module.parameters(recurse=False)
            if parameter.is_floating_point() and parameter.dtype != torch.float32
        }

        def widen(*_: Any, rounded: dict[Any, Tensor] = rounded) -> None:
            for parameter, data in rounded.items():
                parameter.data = data.float()

        def restore(*_: Any, rounded: dict[Any, Tensor] = rounded) -> None:
            for parameter, data in rounded.items():
                parameter.data = data

        if rounded:
            hooks.append(module.register_forward_pre_hook(widen))
            hooks.append(module.register_forward_hook(restore, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
