"""Learns from samples: credit, micro-batches, loss, one optimizer step per epoch. The same for every algorithm."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from assay.algorithms import Algorithm
from assay.config.sections import RunSettings
from assay.errors import TrainingError
from assay.maths.masked import masked_sum
from assay.maths.seeds import derive
from assay.policy.forward import Seen, forward, layout_of
from assay.policy.load import Policy
from assay.train.batch import micro_batches, to_batch
from assay.train.optimizer import Optimizer
from assay.types import Batch, Metrics, Sample


class Learner:
    """The policy with its optimizer. `steps` is the length of the stage, `temperature` that of what it learns from."""

    def __init__(
        self, settings: RunSettings, algorithm: Algorithm, policy: Policy, steps: int, temperature: float
    ) -> None:
        self.settings = settings
        self.algorithm = algorithm
        self.policy = policy
        self.temperature = temperature
        self.optimizer = Optimizer(policy.trainable, settings.optimizer, steps)
        self.reference = _copy(policy) if algorithm.reference else {}

    def step(self, samples: Sequence[Sample], step: int) -> Metrics:
        """Learn from all samples of one step. Losses are means over the masked tokens of the whole step.

        Raises TrainingError when the loss or the gradient is not finite, with the weights of before that gradient step,
        or when the device's memory runs out.
        """
        start = time.perf_counter()
        torch.manual_seed(derive(self.settings.seed, self.settings.stage, "learn", step))
        credited = self.algorithm.credit(samples)
        tokens = sum(sum(sample.mask) for sample in credited)
        useful = [sample for sample in credited if not self.algorithm.skips(sample)]
        try:
            numbers = self._learn(useful, tokens, step)
        except torch.OutOfMemoryError as error:
            raise TrainingError(f"step {step + 1}: memory ran out; lower learner.micro_batch_tokens") from error
        return {
            "loss": numbers.pop("loss"),
            **{f"learn/{name}": value for name, value in numbers.items()},
            "learn/lr": self.optimizer.rate(step),
            "learn/tokens": float(tokens),
            "learn/skipped": 1.0 - len(useful) / len(credited) if credited else 0.0,
            "time/learn": time.perf_counter() - start,
        }

    def _learn(self, samples: Sequence[Sample], tokens: int, step: int) -> Metrics:
        batches = self._prepare(samples)
        numbers: Metrics = {"loss": 0.0}
        for _ in range(self.algorithm.epochs if batches else 0):
            numbers = self._epoch(batches, tokens, step)
        return numbers

    def _prepare(self, samples: Sequence[Sample]) -> list[Batch]:
        self.policy.model.train(self.algorithm.dropout)
        packed = layout_of(self.policy.model) == "packed"
        pieces = micro_batches(samples, self.settings.learner.micro_batch_tokens, packed)
        batches = [to_batch(piece, self.policy.pad_token, self.policy.device) for piece in pieces]
        self.policy.model.eval()
        if self.algorithm.epochs > 1:
            batches = [replace(batch, old_logprobs=self._frozen(batch)) for batch in batches]
        if self.algorithm.reference:
            with self._as_reference():
                batches = [replace(batch, reference_logprobs=self._frozen(batch)) for batch in batches]
        return batches

    def _epoch(self, batches: Sequence[Batch], tokens: int, step: int) -> Metrics:
        self.policy.model.train(self.algorithm.dropout)
        sums: dict[str, float] = defaultdict(float)
        for batch in batches:
            seen = self._forward(batch)
            losses, numbers = self.algorithm.loss(seen.logprobs, batch)
            loss = masked_sum(losses, batch.mask) / tokens
            _require_finite("loss", loss.item(), step)
            loss.backward()  # type: ignore[no-untyped-call]
            sums["loss"] += loss.item()
            for name, value in {**numbers, "entropy": seen.entropy}.items():
                sums[name] += float(masked_sum(value, batch.mask))
        norm = self.optimizer.step(step)
        _require_finite("gradient's norm", norm, step)
        learned = sum(int(batch.mask.sum()) for batch in batches)
        means = {name: value / learned for name, value in sums.items() if name != "loss"}
        return {"loss": sums["loss"], **means, "grad_norm": norm}

    def _forward(self, batch: Batch) -> Seen:
        return forward(self.policy.model, batch, self.temperature)

    @torch.no_grad()
    def _frozen(self, batch: Batch) -> Tensor:
        return self._forward(batch).logprobs

    @contextmanager
    def _as_reference(self) -> Iterator[None]:
        """The policy with the weights it had at the start of the stage."""
        now = _copy(self.policy)
        _put(self.policy, self.reference)
        try:
            yield
        finally:
            _put(self.policy, now)


def _require_finite(what: str, value: float, step: int) -> None:
    if not math.isfinite(value):
        raise TrainingError(
            f"step {step + 1}: the {what} is {value}; lower optimizer.lr, or look at this step's rollouts"
        )


def _copy(policy: Policy) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in policy.trainable.items()}


def _put(policy: Policy, weights: dict[str, Tensor]) -> None:
    for name, parameter in policy.trainable.items():
        parameter.data.copy_(weights[name])
