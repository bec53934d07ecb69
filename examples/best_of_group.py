"""An algorithm: imitate only the best completions of each group.

In the settings of a run:

    plugins = ["best_of_group.py"]
    algorithm.name = "best_of_group"
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.algorithms.base import Algorithm, algorithm, by_group, with_advantage
from assay.algorithms.policy_gradient import build, clipped_loss
from assay.algorithms.shared_settings import PolicyGradientSettings, with_defaults
from assay.types import Sample

Settings = with_defaults("Its advantages are 0 or 1 and need no scale.", scale="none")


def advantages(settings: PolicyGradientSettings, samples: Sequence[Sample]) -> list[Sample]:
    """A = 1 for the best rewards of a group in which some are worse, else 0."""
    result = []
    for group in by_group(samples):
        best, worst = max(sample.reward for sample in group), min(sample.reward for sample in group)
        result += [
            with_advantage(sample, float(sample.reward == best and best > worst))
            for sample in group
        ]
    return result


@algorithm(Settings)
def best_of_group(settings: PolicyGradientSettings) -> Algorithm:
    """Filtered imitation: the likelihood of each group's best completions rises."""
    return build(settings, clipped_loss, advantages)
