"""Learns from samples: advantages, minibatches, micro-batches, loss, optimizer. It is the same for
every algorithm.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, compress
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from assay.algorithms.base import Algorithm, Numbers, by_group
from assay.config.sections import RunSettings
from assay.errors import TrainingError
from assay.maths.arrays import to_array, to_tensor
from assay.maths.masked import masked_max, masked_sum
from assay.maths.seeds import derive
from assay.policy.critic import make_critic
from assay.policy.forward import ModelOutput, layout_of
from assay.policy.load_model import Policy
from assay.policy.teacher import load_teacher
from assay.train.batch import micro_batches, to_batch, with_weights
from assay.train.memory import micro_batch_tokens
from assay.train.ranks import Ranks, combined
from assay.types import Batch, Metrics, Sample


class Learner:
    """The policy with its optimizer.

    `steps` is the length of the stage. `temperature` is the one that samples were generated with.
    """

    def __init__(
        self,
        settings: RunSettings,
        algorithm: Algorithm,
        policy: Policy,
        steps: int,
        temperature: float,
        ranks: Ranks | None = None,
    ) -> None:
        self.settings = settings
        self.algorithm = algorithm
        self.policy = policy
        self.temperature = temperature
        seed = derive(settings.seed, settings.stage, "critic")
        self.critic = make_critic(policy, seed) if algorithm.needs_critic else None
        self.micro_batch_tokens = micro_batch_tokens(settings, policy.model, policy.device)
        self.ranks = ranks or Ranks()
        self.learned_from: Sequence[Sample] = ()  # the last step's samples, with advantages
        self.ranks.shard(policy, self.critic)
        layout_of(policy.model, 0)  # refuses a model that is not causal before anything runs
        self.optimizer = self.ranks.optimizer(policy, settings, steps, self.critic)
        self.reference = self.ranks.reference(policy) if algorithm.needs_reference else None
        name = algorithm.teacher
        self.teacher = load_teacher(name, policy, settings.policy) if name else None

    @property
    def state(self) -> dict[str, Tensor]:
        """Tensors that a checkpoint holds beside policy and optimizer; restored in place."""
        running = self.algorithm.running_baseline
        critic = {} if self.critic is None else self.critic.named_parameters(prefix="critic")
        return dict(critic) | ({} if running is None else {"running_baseline": running})

    def step(self, samples: Sequence[Sample], step: int) -> Metrics:
        """Learn from all samples of one step. Losses are averaged over the step, or minibatch.

        Raises TrainingError if the loss or the gradient is not finite; the weights are then those
        before that gradient step. Raises it too if the device runs out of memory.
        """
        start, self.learned_from = time.perf_counter(), ()
        purpose = self.settings.stage, "learn", step, self.ranks.number
        torch.manual_seed(derive(self.settings.seed, *purpose))  # for dropout
        try:
            first = self.algorithm.needs_logprobs_first
            if first:
                share = self._add_logprobs(self._share(samples))
                samples = self.ranks.union(samples, share, whole_groups=self.algorithm.whole_groups)
            estimated = self.learned_from = self.algorithm.compute_advantages(samples)
            parts = self._minibatches(estimated, step)
            numbers = self._learn(parts, step) or self._without_gradient(estimated)
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                f"step {step + 1}: out of memory; lower learner.micro_batch_tokens"
            ) from error
        return {
            "loss": numbers.pop("loss"),
            **{n if "/" in n else f"learn/{n}": value for n, value in numbers.items()},
            "learn/lr": self.optimizer.lr_at(step),
            **_of_advantages(estimated),
            "learn/tokens": float(sum(sample.trained_tokens for sample in estimated)),
            "learn/skipped": 1.0 - sum(map(len, parts)) / len(estimated) if estimated else 0.0,
            "time/learn": time.perf_counter() - start,
        }

    def whole_policy(self) -> Policy:
        """The policy as an engine loads it."""
        return self.ranks.whole(self.policy)

    def save(self, folder: Path) -> None:
        """Write the policy to `folder`, and what else training needs to go on to its `assay`."""
        self.ranks.save_policy(self.policy, folder)
        self.ranks.save(self.optimizer.tensors, folder / "assay" / "optimizer.safetensors")
        self.ranks.save(self.state, folder / "assay" / "learner.safetensors")

    def restore(self, folder: Path) -> None:
        """Load what `save` wrote, on any number of ranks. Raises ModelError for NaN in it."""
        plain = {"model": str(folder), "device": "cpu", "quantize": None}
        saved = self.settings.policy.model_copy(update=plain)
        self.ranks.restore_policy(self.policy, saved)
        state = self.state
        learned = self.ranks.read(folder / "assay" / "learner.safetensors", state.__getitem__)
        for name, tensor in state.items():
            tensor.data.copy_(learned[name])
        file = folder / "assay" / "optimizer.safetensors"
        self.optimizer.load(self.ranks.read(file, self.optimizer.like))

    def _minibatches(self, samples: Sequence[Sample], step: int) -> list[list[Sample]]:
        """The samples with a gradient, per minibatch, with their weights among all its samples."""
        groups, algorithm = by_group(samples), self.algorithm
        if algorithm.minibatches > 1:
            seed = derive(self.settings.seed, self.settings.stage, "minibatches", step)
            random.Random(seed).shuffle(groups)
        parts = [
            list(chain.from_iterable(groups[n :: algorithm.minibatches]))
            for n in range(algorithm.minibatches)
        ]
        constant = self.settings.rollout.max_tokens
        weighted = [with_weights(part, algorithm.loss_mean, constant) for part in parts]
        return [
            [
                s
                for s in part
                if (s.trained_tokens or s.observed_weight) and not algorithm.has_no_gradient(s)
            ]
            for part in weighted
        ]

    def _share(self, samples: Sequence[Sample]) -> list[Sample]:
        return self.ranks.share(samples, whole_groups=self.algorithm.whole_groups)

    def _learn(self, parts: Sequence[Sequence[Sample]], step: int) -> Metrics:
        shares = [self._share(part) for part in parts if part]
        if not self.algorithm.needs_logprobs_first:
            shares = [self._add_logprobs(part) for part in shares]
        steps: list[Metrics] = []
        for _ in range(self.algorithm.epochs):
            steps = [self._gradient_step(part, step) for part in shares]
        return combined(steps, fmean)

    @torch.no_grad()
    def _without_gradient(self, samples: Sequence[Sample]) -> Metrics:
        """The numbers of a step whose samples have no gradient: those of the loss, from one forward
        pass of one micro-batch on each rank.
        """
        self.policy.model.eval()
        share = self._share([sample for sample in samples if sample.trained_tokens])
        rows: list[Metrics] = []
        for piece in self.ranks.rounds(self._micro_batches(share)[:1]):
            batch = self._batch(piece)
            output = self._forward(batch, teacher=self.teacher)
            _, numbers = self.algorithm.loss(output, batch)
            rows.append(_sums(output, numbers, batch))
        return {"loss": 0.0, "grad_norm": 0.0} | _means(self.ranks.totals(combined(rows, sum)))

    def _add_logprobs(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples with old log-probabilities and values, and those of the reference, if needed.

        All are from before the first gradient step.
        """
        self.policy.model.eval()
        updated = list(samples)
        if self.algorithm.needs_old_logprobs:
            updated = self._evaluated(updated, "old_logprobs", "values")
        if self.reference is not None:
            with self.reference.in_place():
                updated = self._evaluated(updated, "reference_logprobs")
        return updated

    @torch.no_grad()
    def _evaluated(self, samples: Sequence[Sample], *names: str) -> list[Sample]:
        """The samples, in order, with log-probabilities (and a critic's values) as fields
        `names`.
        """
        updated: dict[int, Sample] = {}
        for piece in self.ranks.rounds(self._micro_batches(samples)):
            output = self._forward(self._batch(piece))
            rows = [part.cpu() for part in (output.logprobs, output.values) if part is not None]
            for row, sample in enumerate(piece):
                fields: dict[str, Any] = {
                    name: to_array(values[row, : len(sample.tokens)])
                    for name, values in zip(names, rows, strict=False)
                }
                updated[id(sample)] = replace(sample, **fields)
        return [updated[id(sample)] for sample in samples]

    def _gradient_step(self, samples: Sequence[Sample], step: int) -> Metrics:
        self.policy.model.train(self.algorithm.dropout)
        rows: list[Metrics] = []
        batches: list[Batch] = []
        for piece in self.ranks.rounds(self._micro_batches(samples)):
            batch = self._batch(piece)
            batches.append(batch)
            output = self._forward(batch, teacher=self.teacher)
            losses, numbers = self.algorithm.loss(output, batch)
            loss = masked_sum(losses * batch.weights, batch.predicted)
            loss.backward()  # type: ignore[no-untyped-call]
            rows.append(_sums(output, numbers, batch) | {"loss": loss.item()})
        totals = self.ranks.totals(combined(rows, sum))
        wrong = [not math.isfinite(row["loss"]) for row in rows]
        total = totals.pop("loss")
        self._require_finite("loss", total, step, list(compress(batches, wrong)))
        norm = self.optimizer.step(step)
        metrics = {"loss": total} | ({} if norm is None else {"grad_norm": norm})
        self._require_finite("gradient's norm", norm or 0.0, step, batches)
        return metrics | _means(totals)

    def _require_finite(self, what: str, value: float, step: int, batches: list[Batch]) -> None:
        if not math.isfinite(value):
            why = f"step {step + 1}: the {what} is {value}; lower optimizer.lr"
            raise TrainingError(why, self.ranks.collect(batches))

    def _micro_batches(self, samples: Sequence[Sample]) -> list[list[Sample]]:
        longest = max((len(sample.tokens) for sample in samples), default=0)
        packed = layout_of(self.policy.model, longest) == "packed"
        budget, whole = self.micro_batch_tokens, self.algorithm.whole_groups
        return micro_batches(samples, budget, packed=packed, whole_groups=whole)

    def _batch(self, samples: Sequence[Sample]) -> Batch:
        return to_batch(samples, self.policy.pad_token, self.policy.device)

    def _forward(self, batch: Batch, teacher: Any = None) -> ModelOutput:
        return self.ranks.forward(
            self.policy.model, batch, self.temperature,
            critic=self.critic, entropy_gradient=self.algorithm.entropy_gradient, teacher=teacher,
        )  # fmt: skip


OpenLearner = Callable[[RunSettings, Algorithm, Policy, int, float], Learner]
"""Makes the learner of a stage: `Learner` itself, or one that many processes share."""


def _sums(output: ModelOutput, numbers: Numbers, batch: Batch) -> Metrics:
    """The sum of each number over the batch's trained tokens, or its largest value, and their
    count. Numbers named `replay/` are of the replayed tokens, all others of the fresh ones.
    """
    row: Metrics = {}
    fresh = batch.mask if batch.replayed is None else batch.mask & ~batch.replayed
    again = batch.mask & ~fresh
    unknown = bool(output.entropy.isnan().all())
    entropy = {} if unknown else {"entropy": output.entropy.detach()}
    for name, value in {**numbers, **entropy}.items():
        reduce = masked_max if name.endswith("_max") else masked_sum
        row[name] = float(reduce(value, again if _is_of_replays(name) else fresh))
    return row | {"tokens": int(fresh.sum()), "replay/tokens": int(again.sum())}


def _means(totals: Metrics) -> Metrics:
    """Such sums as means over tokens; without those of which there are no tokens."""
    means: Metrics = {}
    for name, value in totals.items():
        count = totals["replay/tokens" if _is_of_replays(name) else "tokens"]
        if count and name not in ("tokens", "replay/tokens"):
            means[name] = value if name.endswith("_max") else value / count
    return means


def _is_of_replays(name: str) -> bool:
    return name.startswith("replay/")


def _of_advantages(samples: Sequence[Sample]) -> Metrics:
    """The mean and the population standard deviation of advantages over trained tokens that are
    fresh; 0 if there are none.
    """
    fresh = (sample for sample in samples if sample.advantages and not sample.replayed)
    trained = [to_tensor(sample.advantages)[to_tensor(sample.mask)] for sample in fresh]
    values = torch.cat(trained).double() if trained else torch.empty(0)
    values = values if len(values) else torch.zeros(1)
    return {
        "learn/advantage_mean": float(values.mean()),
        "learn/advantage_std": float(values.std(correction=0)),
    }
