"""DPPO: the trust region bounds how far a token's probability moves, not how far its ratio does.

    L_t = -M_t r_t A,   r_t = p(y_t) / p_engine(y_t)
    M_t = 0 where A > 0 and p > p_engine, or A < 0 and p < p_engine, and D(p_engine || p) is too
          large, else 1

D is of two outcomes, the sampled token and all others. Total variation is |p - p_engine|. A ratio
of 100 moves a token from 1e-5 to 1e-3 and stays; one of 0.8 moves it from 1 to 0.8 and may not.
"""

from typing import Literal

from pydantic import PositiveFloat
from torch import Tensor

from assay.algorithms.base import Algorithm, Numbers, algorithm
from assay.algorithms.policy_gradient import build, sampler_logprobs
from assay.algorithms.replay import with_replays
from assay.algorithms.shared_settings import refuse, with_defaults
from assay.maths.divergences import leaves_trust_region
from assay.maths.losses import ratio
from assay.policy.forward import ModelOutput
from assay.types import Batch

COMMON = with_defaults("GRPO's advantages.", scale="group")
LIMITS = {"tv": 0.2, "kl": 0.05}
"""The default limit of each divergence, in both directions."""


class Settings(COMMON):  # type: ignore[misc, valid-type]  # a class made at run time
    """The paper's limits, with GRPO's advantages and token mean."""

    divergence: Literal["tv", "kl"] = "tv"
    """What the trust region bounds: the total variation (`tv`) or the KL divergence (`kl`) from the
    engine's distribution to the policy's, of the sampled token against all others."""
    divergence_low: PositiveFloat | None = None
    """Largest divergence at which a token still becomes less likely. Default: 0.2 for `tv`, 0.05
    for `kl`."""
    divergence_high: PositiveFloat | None = None
    """Largest divergence at which a token still becomes more likely. Default: 0.2 for `tv`, 0.05
    for `kl`."""


@algorithm(Settings)
def dppo(settings: Settings) -> Algorithm:
    """Divergence proximal policy optimisation (arXiv:2602.04879), with the binary divergences."""
    refuse(settings, "dppo masks by the divergence", "clip_low", "clip_high")
    refuse(settings, "the divergence is of tokens", "ratio")
    return with_replays(build(settings, masked_surrogate, anchor=sampler_logprobs), _weight)


def masked_surrogate(
    settings: Settings, ratios: Tensor, logprobs: Tensor, advantages: Tensor
) -> tuple[Tensor, Numbers]:
    """-M r A; a token outside the trust region has no gradient."""
    usual = LIMITS[settings.divergence]
    low, high = settings.divergence_low or usual, settings.divergence_high or usual
    policy = logprobs.detach()
    sampler = policy - ratios.detach().log()
    outside = leaves_trust_region(policy, sampler, advantages, settings.divergence, low, high)
    return -(ratios * advantages).masked_fill(outside, 0.0), {"clipped": outside.float()}


def _weight(output: ModelOutput, batch: Batch) -> Tensor:
    """[B, T] the ratio to the sampler, as if no token were outside the trust region."""
    return ratio(output.logprobs.detach(), batch.logprobs, batch.mask)
