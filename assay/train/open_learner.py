"""Loads the policy and opens the learner that the settings name."""

from assay.algorithms.base import Algorithm
from assay.config.sections import RunSettings
from assay.policy.load_model import Policy, load_policy
from assay.policy.source import ModelSource
from assay.train.learner import Learner


def require_supported(settings: RunSettings, algorithm: Algorithm, adapted: bool) -> None:
    """Raises SettingsError for what that learner cannot do. `adapted`: an adapter is trained."""
    match settings.learner.name:
        case "tinker":
            from assay.train import tinker

            tinker.require_supported(settings, algorithm, adapted)
        case "torch":
            pass


def load_learning_policy(settings: RunSettings, source: ModelSource) -> Policy:
    """The policy of a stage, ready to learn. Raises as `load_policy`."""
    match settings.learner.name:
        case "tinker":
            from assay.policy.tinker import load_tinker_policy

            return load_tinker_policy(settings, source)
        case "torch":
            return load_policy(settings.policy, source)


def open_learner(
    settings: RunSettings, algorithm: Algorithm, policy: Policy, steps: int, temperature: float
) -> Learner:
    """The learner of a stage in one process."""
    match settings.learner.name:
        case "tinker":
            from assay.train.tinker import open_tinker_learner

            return open_tinker_learner(settings, algorithm, policy, steps, temperature)
        case "torch":
            return Learner(settings, algorithm, policy, steps, temperature)
