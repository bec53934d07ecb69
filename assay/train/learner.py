"""Learns from samples: credit, minibatches, micro-batches, loss, optimizer. The same for every
algorithm.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from assay.algorithms import Algorithm
from assay.config.sections import RunSettings
from assay.errors import TrainingError
from assay.maths.masked import masked_sum
from assay.maths.seeds import derive
from assay.policy.critic import make_critic
from assay.policy.forward import ModelOutput, forward, layout_of
from assay.policy.load import Policy
from assay.policy.reference import Reference
from assay.train.batch import by_group, micro_batches, to_batch, with_weights
from assay.train.optimizer import Optimizer
from assay.types import Batch, Metrics, Sample


class Learner:
    """The policy with its optimizer. `steps` is the length of the stage, `temperature` that of what
    it learns from.
    """

    def __init__(
        self,
        settings: RunSettings,
        algorithm: Algorithm,
        policy: Policy,
        steps: int,
        temperature: float,
    ) -> None:
        self.settings = settings
        self.algorithm = algorithm
        self.policy = policy
        self.temperature = temperature
        seed = derive(settings.seed, settings.stage, "critic")
        self.critic = make_critic(policy, seed) if algorithm.critic else None
        self.optimizer = Optimizer(policy.trainable, settings.optimizer, steps, critic=self.critic)
        self.reference = Reference(policy) if algorithm.reference else None

    @property
    def state(self) -> dict[str, Tensor]:
        """What it has learned beside the policy and the optimizer's moments, to be restored in
        place.
        """
        baseline = (
            {}
            if self.algorithm.running_baseline is None
            else {"running_baseline": self.algorithm.running_baseline}
        )
        return baseline | (
            {} if self.critic is None else dict(self.critic.named_parameters(prefix="critic"))
        )

    def step(self, samples: Sequence[Sample], step: int) -> Metrics:
        """Learn from all samples of one step. Losses are means over the whole step (or minibatch),
        as `mean` says.

        Raises TrainingError when the loss or the gradient is not finite, with the weights of before
        that gradient step, or when the device's memory runs out.
        """
        start = time.perf_counter()
        torch.manual_seed(derive(self.settings.seed, self.settings.stage, "learn", step))
        try:
            advantaged = self.algorithm.compute_advantages(
                self._look(samples) if self.algorithm.needs_logprobs_first else samples
            )
            useful = self._useful(advantaged, step)
            numbers = self._learn(useful, step)
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                f"step {step + 1}: memory ran out; lower learner.micro_batch_tokens"
            ) from error
        return {
            "loss": numbers.pop("loss"),
            **{f"learn/{name}": value for name, value in numbers.items()},
            "learn/lr": self.optimizer.lr_at(step),
            "learn/tokens": float(sum(sum(sample.mask) for sample in advantaged)),
            "learn/skipped": 1.0 - sum(map(len, useful)) / len(advantaged) if advantaged else 0.0,
            "time/learn": time.perf_counter() - start,
        }

    def _useful(self, samples: Sequence[Sample], step: int) -> list[list[Sample]]:
        """Per minibatch the samples that can change the weights, each with its weight among all of
        them.
        """
        groups, algorithm = by_group(samples), self.algorithm
        if algorithm.minibatches > 1:
            random.Random(
                derive(self.settings.seed, self.settings.stage, "minibatches", step)
            ).shuffle(groups)
        parts = [
            list(chain.from_iterable(groups[n :: algorithm.minibatches]))
            for n in range(algorithm.minibatches)
        ]
        weighted = [with_weights(part, algorithm.mean) for part in parts]
        return [
            [s for s in part if any(s.mask) and not algorithm.has_no_gradient(s)]
            for part in weighted
        ]

    def _learn(self, parts: Sequence[Sequence[Sample]], step: int) -> Metrics:
        if not self.algorithm.needs_logprobs_first:
            parts = [self._look(part) for part in parts]
        numbers: list[Metrics] = []
        for _ in range(self.algorithm.epochs):
            numbers = [self._gradient_step(part, step) for part in parts if part]
        names = dict.fromkeys(name for found in numbers for name in found)
        return {"loss": 0.0} | {name: fmean(found[name] for found in numbers) for name in names}

    def _look(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples with what policy, critic and reference say of them before the first gradient
        step, as needed.
        """
        self.policy.model.eval()
        found = list(samples)
        if self.critic is not None or self.algorithm.epochs * self.algorithm.minibatches > 1:
            found = self._noted(found, "old_logprobs", "values")
        if self.reference is not None:
            with self.reference.in_place():
                found = self._noted(found, "reference_logprobs")
        return found

    @torch.no_grad()
    def _noted(self, samples: Sequence[Sample], *names: str) -> list[Sample]:
        """The samples with log-probabilities, and values where there is a critic, under `names`; in
        the same order.
        """
        found: dict[int, Sample] = {}
        for piece in self._pieces(samples):
            output = self._forward(self._batch(piece))
            numbers = [
                part.tolist() for part in (output.logprobs, output.values) if part is not None
            ]
            for row, sample in enumerate(piece):
                rows: dict[str, Any] = {
                    name: tuple(part[row][: len(sample.tokens)])
                    for name, part in zip(names, numbers, strict=False)
                }
                found[id(sample)] = replace(sample, **rows)
        return [found[id(sample)] for sample in samples]

    def _gradient_step(self, samples: Sequence[Sample], step: int) -> Metrics:
        self.policy.model.train(self.algorithm.dropout)
        sums: dict[str, float] = defaultdict(float)
        batches: list[Batch] = []
        for piece in self._pieces(samples):
            batch = self._batch(piece)
            batches.append(batch)
            output = self._forward(batch)
            losses, numbers = self.algorithm.loss(output, batch)
            loss = masked_sum(losses * batch.weights, batch.mask)
            _require_finite("loss", loss.item(), step, [batch])
            loss.backward()  # type: ignore[no-untyped-call]
            sums["loss"] += loss.item()
            for name, value in {**numbers, "entropy": output.entropy.detach()}.items():
                sums[name] += float(masked_sum(value, batch.mask))
        norm = self.optimizer.step(step)
        _require_finite("gradient's norm", norm, step, batches)
        learned = sum(int(batch.mask.sum()) for batch in batches)
        means = {name: value / learned for name, value in sums.items() if name != "loss"}
        return {"loss": sums["loss"], **means, "grad_norm": norm}

    def _pieces(self, samples: Sequence[Sample]) -> list[list[Sample]]:
        packed = layout_of(self.policy.model) == "packed"
        budget = self.settings.learner.micro_batch_tokens
        return micro_batches(
            samples, budget, packed=packed, whole_groups=self.algorithm.whole_groups
        )

    def _batch(self, samples: Sequence[Sample]) -> Batch:
        return to_batch(samples, self.policy.pad_token, self.policy.device)

    def _forward(self, batch: Batch) -> ModelOutput:
        return forward(
            self.policy.model, batch, self.temperature,
            critic=self.critic, entropy_gradient=self.algorithm.entropy_gradient,
        )  # fmt: skip


def _require_finite(what: str, value: float, step: int, batches: Sequence[Batch]) -> None:
    if not math.isfinite(value):
        raise TrainingError(f"step {step + 1}: the {what} is {value}; lower optimizer.lr", batches)
