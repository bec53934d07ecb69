"""The settings that all policy-gradient algorithms share."""

from __future__ import annotations

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
from assay.maths.advantages import MIN_STD, Baseline, Scale
from assay.maths.divergences import Estimator
from assay.maths.masked import Mean
from assay.maths.ratios import Correction, Level


class PolicyGradientSettings(AlgorithmSettings):
    """Options of every algorithm that learns from rewards; the algorithms differ in their
    defaults.
    """

    baseline: Baseline = "group"
    """What a reward is compared with: nothing, the batch's mean, the mean of past steps, its
    group's mean, or the mean of its group's others."""
    scale: Scale = "none"
    """What the difference is divided by: nothing, its group's standard deviation, or the
    batch's."""
    min_std: PositiveFloat = MIN_STD
    """Smallest standard deviation of rewards. A group below it counts as zero variance: its
    advantages are 0."""
    running_decay: float = Field(0.9, ge=0, lt=1)
    """How much of the mean of past steps stays, each step, under `baseline = "running"`."""
    advantage_clip: PositiveFloat | None = None
    """Largest advantage of either sign."""
    reward_from: tuple[float, float] | None = None
    """Rewards are clamped to this range first, and the range mapped onto `reward_to`."""
    reward_to: tuple[float, float] = (0.0, 1.0)
    """Where `reward_from` is mapped to."""
    overlong_share: float = Field(0.0, ge=0, le=1)
    """Soft punishment of long completions: the last share of `rollout.max_tokens`, over which it
    rises; 0 is none."""
    overlong_penalty: NonNegativeFloat = 1.0
    """What a completion as long as allowed loses of its reward."""
    mask_truncated: bool = False
    """Whether completions cut off at the limit are only compared with, not learned from."""
    zero_variance_groups: Literal["count", "drop", "resample"] = "count"
    """Groups with zero variance (all rewards equal): `count` their tokens in the denominator of the
    loss, `drop` them, or `resample` new groups in their place (dynamic sampling)."""
    max_resamples: PositiveInt = 10
    """Most rounds of resampling in one step, with `zero_variance_groups = "resample"`."""
    ratio: Level = "token"
    """The ratio to the sampling policy: of each token, the geometric mean over the completion, or
    the product."""
    clip_low: PositiveFloat = 0.2
    """Ratios under 1 - clip_low are clipped."""
    clip_high: PositiveFloat = 0.28
    """Ratios over 1 + clip_high are clipped."""
    dual_clip: float | None = Field(None, gt=1)
    """Ratios over this are clipped where the advantage is negative, too; 3 is usual."""
    importance_sampling: Correction = "token_truncate"
    """What is done where learner and engine disagree on a token's probability, by ratio of tokens
    or of completions: nothing, truncate the weight to the bounds, or mask what lies outside
    them."""
    importance_sampling_min: NonNegativeFloat = 0.0
    """Smallest weight of the correction; 0.5 is usual with a mask."""
    importance_sampling_max: PositiveFloat = 2.0
    """Largest weight of the correction; 5 is usual with a mask."""
    kl: NonNegativeFloat = 0.0
    """Weight of the divergence from the policy as it was at the start of the stage."""
    kl_estimator: Estimator = "k3"
    """How the divergence is estimated; k3 is unbiased and never negative."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Whether the divergence is a term of the loss or taken from the reward."""
    kl_importance_sampling: bool = True
    """Whether the divergence in the loss is weighted by the ratio, which makes its gradient
    unbiased."""
    entropy_bonus: NonNegativeFloat = 0.0
    """Weight of the entropy, per token, that is taken from the loss."""
    loss_mean: Mean = "tokens"
    """Over what losses are averaged: all tokens of the step; tokens of each completion, then
    completions; or as many tokens as the completions could have had."""
    epochs: PositiveInt = 1
    """Passes over each batch."""
    minibatches: PositiveInt = 1
    """Gradient steps in one pass, each on whole groups."""

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        if self.reward_from is not None and self.reward_from[0] >= self.reward_from[1]:
            raise ValueError("the range `reward_from` must rise")
        if self.importance_sampling_min >= self.importance_sampling_max:
            raise ValueError("importance_sampling_min must be less than importance_sampling_max")
        if self.dual_clip is not None and self.dual_clip <= 1 + self.clip_high:
            raise ValueError("dual_clip must be more than 1 + clip_high")
        if (
            self.kl
            and self.kl_in == "loss"
            and self.kl_estimator == "k1"
            and not self.kl_importance_sampling
        ):
            raise ValueError(
                "the gradient of k1 in the loss is noise alone: set kl_importance_sampling, or"
                ' kl_in = "reward"'
            )
        return self


def refuse(settings: PolicyGradientSettings, why: str, *names: str) -> None:
    """Raises SettingsError where a setting is given that `why` keeps from doing anything."""
    if given := sorted(settings.model_fields_set.intersection(names)):
        raise SettingsError(f"algorithm.{given[0]} would do nothing: {why}; leave it out")


def with_defaults(why: str, **defaults: object) -> type[PolicyGradientSettings]:
    """The shared settings with other defaults; `why` is what there is to say of them."""
    fields: dict[str, Any] = {}
    for name, value in defaults.items():
        field = copy(PolicyGradientSettings.model_fields[name])
        field.default = value
        fields[name] = (field.annotation, field)
    return create_model("Settings", __base__=PolicyGradientSettings, __doc__=why, **fields)
