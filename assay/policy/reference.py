"""The reference policy: the weights at the start of the stage. Frozen weights are not copied."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from assay.policy.load_model import Policy


class Reference:
    """A copy of the trained weights, or no copy if the stage starts from a fresh adapter:
    switching it off then gives the reference.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.weights = {} if policy.starts_as_base else _copy(policy)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Meanwhile, the policy has the weights of the start of the stage."""
        if not self.weights:
            with self.policy.model.disable_adapter():
                yield
            return
        current = _copy(self.policy)
        self.policy.copy_weights(self.weights)
        try:
            yield
        finally:
            self.policy.copy_weights(current)


def _copy(policy: Policy) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in policy.trainable.items()}
