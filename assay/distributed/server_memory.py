"""Counts what a vLLM server holds on each of its GPUs, from the model's shapes alone, and how long
it prefills again after a weight update: `assay plan --gpus`.
"""

from dataclasses import dataclass

from assay.config.generation import EngineSettings
from assay.distributed.cards import GB, Card
from assay.distributed.rank_memory import ModelTensors
from assay.engines.vllm.server import MAX_NUM_SEQS, bytes_per_token, kv_cache_bytes
from assay.policy.source import context_of, head_size, is_mixture
from assay.train.estimate import REACHED

SERVER_RESERVE = 4 * GB
"""Bytes of a server for activations and CUDA graphs: a rule of thumb."""


@dataclass(frozen=True, slots=True)
class ServerMemory:
    """One GPU of a server, in bytes and tokens."""

    weights: int
    kv_cache: int
    """`--kv-cache-memory-bytes`, as assay sets it."""
    bytes_per_token: int
    room: int
    """Of the GPU beside the reserve of servers."""
    most_tokens: int
    """The largest `engine.kv_cache_tokens` for which it has room; 0 where not even the weights have
    it."""
    setting: int
    """`engine.kv_cache_tokens`, which is of one GPU and bounds the length of a rollout."""
    context: int | None
    """The model's context in tokens; None if it does not say."""
    kv_tokens: int
    """Tokens that the KV cache of the server holds, over all its GPUs."""
    longest: int
    """Tokens of the longest rollout."""
    rollouts: int
    """Rollouts that the run wants from the server at once."""
    prefill_seconds: float | None
    """To prefill all rollouts in flight again after a weight update, at their longest. None for a
    mixture of experts, of whose parameters a token meets only a part."""

    @property
    def fits(self) -> bool:
        """Whether weights and KV cache have room."""
        return self.weights + self.kv_cache <= self.room

    @property
    def at_once(self) -> int:
        """Rollouts of the longest length that the KV cache holds."""
        return self.at_once_with(self.setting)

    def at_once_with(self, setting: int) -> int:
        """The same with another `engine.kv_cache_tokens`."""
        tokens = setting * self._bytes_of_setting // self.bytes_per_token
        return min(MAX_NUM_SEQS, tokens // self.longest)

    def setting_for(self, rollouts: int) -> int:
        """The `engine.kv_cache_tokens` that holds so many rollouts of the longest length."""
        tokens = min(MAX_NUM_SEQS, rollouts) * self.longest
        return max(self.longest, -(-tokens * self.bytes_per_token // self._bytes_of_setting))

    @property
    def _bytes_of_setting(self) -> int:
        """Bytes of each GPU for one more of `engine.kv_cache_tokens`."""
        return self.kv_cache // self.setting


def server_memory(
    model: ModelTensors, settings: EngineSettings, card: Card, longest: int, rollouts: int
) -> ServerMemory:
    """One GPU of a server that generates so many `rollouts` at once, of up to `longest` tokens."""
    config, parallel = model.config, settings.tensor_parallel
    dtype = "bfloat16" if settings.dtype == "bfloat16" or model.size == 2 else "float32"
    shrinks = model.size == 4 and dtype == "bfloat16"
    weights = model.whole() // (2 if shrinks else 1) // parallel
    kv_cache, each = (
        kv_cache_bytes(config, dtype, settings),
        bytes_per_token(config, dtype, parallel),
    )
    room = card.room - SERVER_RESERVE
    in_flight = min(min(rollouts, MAX_NUM_SEQS) * longest, kv_cache // each)
    width = int(config.num_attention_heads) * head_size(config)
    attention = 4 * int(config.num_hidden_layers) * width * longest // 2
    operations = in_flight * (2 * model.numbers + attention)
    speed = parallel * card.teraflops * 1e12 * REACHED
    seconds = None if is_mixture(config) else operations / speed
    most = max(0, room - weights) // bytes_per_token(config, dtype)
    return ServerMemory(
        weights, kv_cache, each, room, most, settings.kv_cache_tokens, context_of(config),
        kv_cache // each, longest, rollouts, seconds,
    )  # fmt: skip
