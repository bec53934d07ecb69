"""Learns on a Tinker server.

The server computes log-probabilities, our losses are computed from them here, and it gets their
derivatives in each log-probability back, so that every loss of log-probabilities alone is ours to
the letter. Of what else a loss may need, it has nothing.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from assay.algorithms.base import Algorithm
from assay.config.sections import LearnerSettings, PolicySettings, RunSettings
from assay.errors import SettingsError
from assay.maths.schedules import schedule_factor
from assay.policy.forward import ModelOutput
from assay.policy.load_model import Policy
from assay.policy.source import source_of
from assay.policy.tinker import RemoteAdapter, TinkerPolicy, TinkerRow, saved_state
from assay.train.learner import Learner
from assay.train.optimizer import OptimizerSteps
from assay.train.ranks import Ranks
from assay.types import Batch

ALPHA = 32.0
"""The scale of adapters on all servers."""


def require_supported(settings: RunSettings, algorithm: Algorithm, adapted: bool) -> None:
    """Raises SettingsError that names what a Tinker server cannot compute or keep."""
    for reason in _refusals(settings, algorithm, adapted):
        raise SettingsError(f"stage {settings.stage!r}: learner.name = 'tinker' {reason}")


def _refusals(settings: RunSettings, algorithm: Algorithm, adapted: bool) -> Iterator[str]:
    name, policy, lora = settings.algorithm["name"], settings.policy, settings.policy.lora
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        yield "has the server's processes to learn with; start it without torchrun"
    if algorithm.needs_critic:
        yield f"cannot compute algorithm.name = {name!r}: a server keeps no critic; use 'grpo'"
    if algorithm.teacher:
        yield (
            f"cannot compute algorithm.name = {name!r}: a server gives no distribution over tokens"
            " to compare with a teacher's"
        )
    if algorithm.entropy_gradient:
        yield "cannot compute algorithm.entropy_bonus: a server gives no entropy; leave it out"
    if not adapted:
        yield "trains adapters only; set policy.lora"
    if lora and lora.alpha != ALPHA:
        yield f"has adapters of alpha {ALPHA:g}; leave policy.lora.alpha out"
    if lora and lora.dropout:
        yield "has no dropout; leave policy.lora.dropout out"
    if policy.quantize or policy.gradient_checkpointing or policy.float32_lm_head:
        yield (
            "has no model here: the server decides on policy.quantize,"
            " policy.gradient_checkpointing and policy.float32_lm_head; leave them out"
        )
    if algorithm.learns_from == "rollouts" and settings.rollout.temperature != 1.0:
        yield "learns at temperature 1; leave rollout.temperature out"
    if settings.evaluate and settings.evaluate.min_p:
        yield "cannot sample with evaluate.min_p; leave it out"
    if find_spec("tinker") is None:
        yield "needs a package: pip install -e '.[tinker]' in assay's checkout"


class TinkerRanks(Ranks):
    """A job of one whose work a Tinker server does."""

    def __init__(self, adapter: RemoteAdapter, settings: LearnerSettings) -> None:
        self.adapter = self._computes = adapter
        self.gradients = PendingGradients(settings.reduction)

    def optimizer(
        self, policy: Policy, settings: RunSettings, steps: int, critic: Any
    ) -> OptimizerSteps:
        """The server's."""
        return RemoteOptimizer(self.adapter, self.gradients, settings, steps)

    def reference(self, policy: Policy) -> "RemoteReference":
        """A second adapter, which does not learn."""
        return RemoteReference(self)

    @contextmanager
    def computing_with(self, adapter: RemoteAdapter) -> Iterator[None]:
        """Meanwhile, the log-probabilities are those of another adapter."""
        self._computes = adapter
        try:
            yield
        finally:
            self._computes = self.adapter

    def forward(self, model: Any, batch: Batch, *options: Any, **keywords: Any) -> ModelOutput:
        """The server's log-probabilities. Their derivatives wait in `gradients`."""
        rows = rows_of(batch)
        logprobs = placed(self._computes.logprobs(rows), batch)
        logprobs.requires_grad_()
        logprobs.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda leaf: self.gradients.add(rows, leaf)
        )
        return ModelOutput(logprobs, entropy=torch.full_like(logprobs, torch.nan))

    def restore_policy(self, policy: Policy, settings: PolicySettings) -> None:
        """Have the server go on from the state that a checkpoint names."""
        checkpoint = source_of(settings).adapter
        assert checkpoint, "`TinkerPolicy.save` writes an adapter"
        self.adapter.resume(saved_state(checkpoint))


def rows_of(batch: Batch) -> list[list[int]]:
    """The tokens of each sequence, up to the last one that is to be predicted."""
    places = torch.arange(batch.tokens.shape[1])
    lengths = (batch.predicted * (places + 1)).amax(-1).clamp(min=2)
    return [tokens[:length].tolist() for tokens, length in zip(batch.tokens, lengths, strict=True)]


def placed(logprobs: Sequence[Sequence[float]], batch: Batch) -> Tensor:
    """[B, T] of what a server says of each sequence's tokens but the first; 0 where nothing is to
    be predicted.
    """
    whole = torch.zeros(batch.tokens.shape)
    for row, values in zip(whole, logprobs, strict=True):
        row[1 : len(values) + 1] = torch.tensor(values)
    return whole.masked_fill(~batch.predicted, 0.0)


class PendingGradients:
    """What the server is to learn in the next step."""

    def __init__(self, reduction: str) -> None:
        self._reduction = reduction
        self._rows: list[TinkerRow] = []

    def add(self, rows: Sequence[list[int]], logprobs: Tensor) -> None:
        """Keep the derivatives [B, T] of a loss in the `logprobs` of these rows."""
        assert logprobs.grad is not None
        for tokens, values, slopes in zip(rows, logprobs.detach(), logprobs.grad, strict=True):
            end = len(tokens)
            advantages = (-slopes[1:end]).tolist()
            self._rows.append(TinkerRow(tokens, values[1:end].tolist(), advantages))

    def take(self) -> list[TinkerRow]:
        """What is kept, for the server; it is forgotten here.

        The server's sum has our gradient as it is. Its mean over N sequences of their means over T
        tokens has it where each advantage is multiplied by N T.
        """
        rows, self._rows = self._rows, []
        if self._reduction == "sum":
            return rows
        return [
            TinkerRow(
                row.tokens,
                row.logprobs,
                [value * len(rows) * len(row.advantages) for value in row.advantages],
            )
            for row in rows
        ]


class RemoteOptimizer:
    """The server's AdamW, with our schedule."""

    def __init__(
        self, adapter: RemoteAdapter, gradients: PendingGradients, settings: RunSettings, steps: int
    ) -> None:
        assert settings.optimizer.lr is not None, "a stage resolves it"
        self._adapter, self._gradients = adapter, gradients
        self._settings, self._steps = settings.optimizer, steps
        self.lr = settings.optimizer.lr
        self.tensors: dict[str, Tensor] = {}
        """None: the moments are in the server's state."""

    def lr_at(self, step: int) -> float:
        """The learning rate at `step` (from 0)."""
        settings = self._settings
        factor = schedule_factor(step, self._steps, settings.warmup_steps, settings.schedule)
        return self.lr * factor

    def step(self, step: int) -> float | None:
        """Send the gradients, and have the server take a step along them."""
        settings = self._settings
        metrics = self._adapter.learn(
            self._gradients.take(),
            learning_rate=self.lr_at(step), beta1=settings.betas[0], beta2=settings.betas[1],
            eps=settings.eps, weight_decay=settings.weight_decay,
            grad_clip_norm=settings.max_grad_norm,
        )  # fmt: skip
        norms = (value for name, value in metrics.items() if name.endswith("/grad_norm"))
        return next(norms, None)

    def like(self, key: str) -> Tensor:
        """Of no tensors."""
        raise KeyError(key)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """The server has loaded them."""


class RemoteReference:
    """The adapter of the stage's start, beside the one that learns."""

    def __init__(self, ranks: TinkerRanks) -> None:
        self._ranks, self._start = ranks, ranks.adapter.at_start()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Meanwhile, log-probabilities are those of the start."""
        with self._ranks.computing_with(self._start):
            yield


def open_tinker_learner(
    settings: RunSettings, algorithm: Algorithm, policy: Policy, steps: int, temperature: float
) -> Learner:
    """A learner of a policy on a Tinker server."""
    assert isinstance(policy, TinkerPolicy)
    ranks = TinkerRanks(policy.adapter, settings.learner)
    return Learner(settings, algorithm, policy, steps, temperature, ranks)
