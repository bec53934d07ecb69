"""What an algorithm is: a loss, what it learns from, and how rewards become advantages."""

import inspect
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from assay.config.messages import refusal
from assay.errors import SettingsError
from assay.maths.arrays import to_array, to_tensor
from assay.maths.masked import LossMean
from assay.policy.forward import ModelOutput
from assay.registry import Registry, one_line, place_of
from assay.types import Batch, Sample

Numbers = Mapping[str, Tensor]
"""Per-token numbers [B, T] to log. The learner tracks each as `learn/NAME`: its mean over the
trained tokens, or its largest value where the name ends in `_max`. Replayed tokens are not in
these means. A name such as `replay/weight` is tracked as it is: its mean over replayed tokens."""


Loss = Callable[[ModelOutput, Batch], tuple[Tensor, Numbers]]
"""Maps the model's output for a batch to a loss [B, T], which is not reduced, and numbers to log.
Positions outside `batch.mask` may hold anything."""
ComputeAdvantages = Callable[[Sequence[Sample]], list[Sample]]
"""Fills in `advantages` of the samples of one step. Samples that it leaves out are not learned
from and count in no mean."""


def never(sample: Sample) -> bool:
    """Compute every sample."""
    return False


def no_advantage(sample: Sample) -> bool:
    """Says whether all advantages are 0, so that a pure policy gradient of the sample is
    exactly 0.
    """
    return not to_tensor(sample.advantages).any()


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm as data: its loss, its advantages, and what both need. The training loop is the
    same for all.
    """

    loss: Loss
    """Per-token loss."""
    learns_from: Literal["rollouts", "dialogues", "pairs", "labels"]
    """Judged completions of the policy; demonstrations; or a file of chosen and rejected, or of
    labelled completions."""
    compute_advantages: ComputeAdvantages = list
    """From rewards to advantages, over all samples of a step."""
    has_no_gradient: Callable[[Sample], bool] = never
    """Samples whose gradient is exactly 0: they count in the mean, but are not computed."""
    loss_mean: LossMean = "tokens"
    """How losses are averaged (`maths.masked.token_weights`)."""
    needs_old_logprobs: bool = False
    """Whether it needs log-probabilities of the policy before its first gradient step."""
    needs_reference: bool = False
    """Whether the loss needs log-probabilities of the reference: the policy at the stage's
    start."""
    teacher: str = ""
    """The model that each token's distribution is compared with, by its name or folder; empty for
    none."""
    needs_critic: bool = False
    """Whether it needs values, from a critic that learns beside the policy."""
    needs_logprobs_first: bool = False
    """Whether `compute_advantages` needs values or log-probabilities of the reference."""
    entropy_gradient: bool = False
    """Whether the loss holds the entropy."""
    epochs: int = 1
    """Passes over each batch."""
    minibatches: int = 1
    """Gradient steps in one pass, each on whole groups."""
    whole_groups: bool = False
    """Whether the loss relates samples of a group, so that they must share a micro-batch."""
    max_resamples: int = 0
    """Most rounds in which groups of zero variance are replaced by new ones before the step."""
    file: str = ""
    """The file of pairs or labels, for an algorithm that learns from one."""
    running_baseline: Tensor | None = None
    """[2] float64, the running mean of rewards and the steps in it. `compute_advantages` changes it
    in place; checkpoints hold it."""
    learns_replays: bool = False
    """Whether it learns from replayed samples: `replay.with_replays` says how."""
    dropout: bool = False
    """Whether dropout is on while learning; off keeps the ratio to the sampling policy exact."""


class AlgorithmSettings(BaseModel):
    """Settings of one algorithm: the table [algorithm] without `name`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


T = TypeVar("T")
S = TypeVar("S", bound=AlgorithmSettings)


@dataclass(frozen=True)
class AlgorithmFactory:
    """A registered algorithm: its settings class and the function that builds it."""

    settings: type[AlgorithmSettings]
    make: Callable[[Any], Algorithm]
    __doc__: str = ""

    def build(self, table: Mapping[str, Any]) -> Algorithm:
        """Returns the algorithm for a table of settings (with `name`). Raises SettingsError for an
        invalid one.
        """
        values = {key: value for key, value in table.items() if key != "name"}
        try:
            settings = self.settings.model_validate(values)
            return returned(self.make, _is_algorithm, "an Algorithm, as build() does", settings)
        except ValidationError as error:
            raise refusal(error, self.settings.model_fields, "algorithm") from None


def _is_algorithm(result: object, arguments: object) -> bool:
    return isinstance(result, Algorithm)


def returned(
    function: Callable[..., T], is_right: Callable[[object, Sequence[Any]], bool], must: str,
    *arguments: Any,
) -> T:  # fmt: skip
    """Returns what a function of an algorithm returns. Raises SettingsError that names its file and
    line where it takes other arguments, or returns anything that is not what it `must`.
    """
    what = f"{place_of(function)}{getattr(function, '__name__', 'the function')} must"
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError) as error:
        why = f"{what} take {len(arguments)} arguments ({one_line(error)})"
        raise SettingsError(why) from None
    result = function(*arguments)
    if not is_right(result, arguments):
        raise SettingsError(f"{what} return {must}")
    return result


algorithms: Registry[AlgorithmFactory] = Registry("algorithm", "assay.algorithms")


def algorithm(settings: type[S]) -> Callable[[Callable[[S], Algorithm]], Callable[[S], Algorithm]]:
    """Registers a function that makes an Algorithm from settings. Settings name it by its name."""
    if not isinstance(settings, type):
        raise SettingsError(f"{place_of(settings)}write @algorithm(Settings), with its class")

    def register(make: Callable[[S], Algorithm]) -> Callable[[S], Algorithm]:
        algorithms.add(make.__name__, AlgorithmFactory(settings, make, make.__doc__ or ""))
        return make

    return register


def rollouts_of(samples: Sequence[Sample]) -> list[int]:
    """Returns [N] the number of each sample's rollout, from 0. Samples that are parts of one
    rollout share it.
    """
    return numbered(
        (s.group, place if s.rollout is None else f"#{s.rollout}")
        for place, s in enumerate(samples)
    )


def rollout_totals(samples: Sequence[Sample], values: Iterable[float]) -> list[float]:
    """Returns [N] for each sample, the sum of `values` [N] over all parts of its rollout."""
    rollouts, totals = rollouts_of(samples), defaultdict[int, float](float)
    for rollout, value in zip(rollouts, values, strict=True):
        totals[rollout] += value
    return [totals[rollout] for rollout in rollouts]


def numbered(names: Iterable[Hashable]) -> list[int]:
    """Returns a number for each of `names`, from 0 in order of appearance. Equal names share it."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]


def by_group(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Returns the groups among the samples, in the order in which they first appear."""
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.group, []).append(sample)
    return list(groups.values())


def with_advantage(sample: Sample, advantage: float) -> Sample:
    """Returns the sample with one advantage on all its trained tokens."""
    return replace(sample, advantages=to_array(to_tensor(sample.mask) * advantage))
