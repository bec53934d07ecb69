"""The settings that all policy-gradient algorithms share."""

from copy import copy
from typing import Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    create_model,
    model_validator,
)

from assay.algorithms.base import AlgorithmSettings
from assay.errors import SettingsError
from assay.maths.advantages import Baseline, Scale
from assay.maths.kl import KLEstimator
from assay.maths.losses import ImportanceSampling, RatioLevel
from assay.maths.masked import LossMean

SWITCHED_OFF: tuple[tuple[str, str, set[Any]], ...] = (
    ("overlong_penalty", "overlong_share", {0.0}),
    ("max_resamples", "zero_variance_groups", {"count", "drop"}),
    ("importance_sampling_min", "importance_sampling", {"none"}),
    ("importance_sampling_max", "importance_sampling", {"none"}),
    ("kl_estimator", "kl", {0.0}),
    ("kl_in", "kl", {0.0}),
)
"""An option, the option that it belongs to, and the values of that with which it has no effect."""


class PolicyGradientSettings(AlgorithmSettings):
    """Options of every algorithm that learns from rewards. Algorithms differ in their defaults."""

    baseline: Baseline = "group"
    """What is subtracted from a reward: `none`, or the mean of the `batch`, of past steps
    (`running`), of its `group`, or of the others in its group (`leave_one_out`)."""
    scale: Scale = "none"
    """What the difference is divided by: `none`, the standard deviation of its `group` or the
    `batch`, or the `mean` reward of its group."""
    advantage_clip: PositiveFloat | None = None
    """Largest size of an advantage."""
    overlong_share: float = Field(0.0, ge=0, le=1)
    """Soft overlong punishment: it rises over the last share of `rollout.max_tokens`; 0 turns it
    off."""
    overlong_penalty: NonNegativeFloat = 1.0
    """Reward that a completion at the token limit loses, with `overlong_share`."""
    mask_truncated: bool = False
    """Do not learn from completions cut off at the token limit; they still count in the
    baseline."""
    zero_variance_groups: Literal["count", "drop", "resample"] = "count"
    """Groups of zero variance (equal rewards before shaping): `count` their tokens in the
    denominator of the loss, `drop` them, or `resample` new groups in their place (dynamic
    sampling)."""
    max_resamples: PositiveInt = 10
    """Most rounds of resampling in one step."""
    ratio: RatioLevel = "token"
    """Importance ratio of each `token`, or of the completion: the geometric `mean` or the `product`
    of its tokens."""
    clip_low: float = Field(0.2, gt=0, le=1)
    """Ratios below 1 - clip_low are clipped (epsilon); with 1, none is."""
    clip_high: PositiveFloat = 0.28
    """Ratios above 1 + clip_high are clipped (epsilon high)."""
    importance_sampling: ImportanceSampling = "token_truncate"
    """Importance sampling correction where learner and engine give a token different probabilities:
    truncate (TIS) or mask the ratio of each token, or the product over the completion
    (`sequence_`), in which the rounding of bfloat16 adds up."""
    importance_sampling_min: NonNegativeFloat = 0.0
    """Smallest importance sampling weight; 0.5 is usual with a mask."""
    importance_sampling_max: PositiveFloat = 2.0
    """Largest importance sampling weight; 5 is usual with a mask."""
    geometric_mask: tuple[PositiveFloat, PositiveFloat] | None = None
    """Leave out of the loss completions in which the geometric mean of learner over engine, over
    their tokens, is outside these bounds; `[0.99, 1.01]` is usual."""
    kl: NonNegativeFloat = 0.0
    """KL penalty strength (beta). The reference is the policy at the start of the stage."""
    kl_estimator: KLEstimator = "k3"
    """How the KL is estimated per token; k3 is unbiased and never negative."""
    kl_in: Literal["loss", "reward"] = "loss"
    """The KL penalty is a term of the `loss`, weighted by the ratio, or is subtracted from the
    `reward`."""
    entropy_bonus: NonNegativeFloat = 0.0
    """Weight of the entropy bonus: the entropy per token."""
    loss_mean: LossMean = "tokens"
    """Mean of losses over all `tokens` of the step; over each completion's tokens, then over
    `completions`; over the tokens of each prompt's group, then over `prompts`; or their sum divided
    by a `constant`, completions x `rollout.max_tokens`."""
    epochs: PositiveInt = 1
    """Passes over each batch."""
    minibatches: PositiveInt = 1
    """Gradient steps in one pass, each on whole groups."""

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        for name, other, values in SWITCHED_OFF:
            is_default = getattr(self, name) == type(self).model_fields[name].default
            if not is_default and (value := getattr(self, other)) in values:
                raise ValueError(f"{name} has no effect with {other} = {value!r}; leave it out")
        if self.importance_sampling_min >= self.importance_sampling_max:
            raise ValueError("importance_sampling_min must be less than importance_sampling_max")
        if self.geometric_mask and not self.geometric_mask[0] <= 1 <= self.geometric_mask[1]:
            raise ValueError("geometric_mask must hold 1, where engine and learner agree")
        return self


def refuse(settings: PolicyGradientSettings, why: str, *names: str) -> None:
    """Raise SettingsError if one of `names` is set, though it would have no effect."""
    if unused := sorted(settings.model_fields_set.intersection(names)):
        raise SettingsError(f"algorithm.{unused[0]} would have no effect: {why}; leave it out")


def with_defaults(doc: str, **defaults: object) -> type[PolicyGradientSettings]:
    """The shared settings with other defaults; `doc` becomes the class's docstring."""
    fields: dict[str, Any] = {}
    for name, value in defaults.items():
        field = copy(PolicyGradientSettings.model_fields[name])
        field.default = value
        fields[name] = (field.annotation, field)
    return create_model("Settings", __base__=PolicyGradientSettings, __doc__=doc, **fields)
