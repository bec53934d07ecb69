"""The reference: the policy as it was at the start of the stage, without a second copy of what
never changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from assay.policy.load import Policy


class Reference:
    """A copy of the trained weights; none at all where the stage starts from a fresh adapter, which
    is then off.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.weights = {} if _adapts_nothing_yet(policy) else _copy(policy)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The policy with the weights it had at the start of the stage."""
        if not self.weights:
            with self.policy.model.disable_adapter():
                yield
            return
        now = _copy(self.policy)
        _put(self.policy, self.weights)
        try:
            yield
        finally:
            _put(self.policy, now)


def _adapts_nothing_yet(policy: Policy) -> bool:
    """Whether all that is trained is a low-rank adapter that is still zero: the model with it off
    is the same.
    """
    last = [parameter for name, parameter in policy.trainable.items() if ".lora_B." in name]
    return (
        bool(last)
        and len(last) * 2 == len(policy.trainable)
        and not any(bool(p.any()) for p in last)
    )


def _copy(policy: Policy) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in policy.trainable.items()}


def _put(policy: Policy, weights: dict[str, Tensor]) -> None:
    for name, parameter in policy.trainable.items():
        parameter.data.copy_(weights[name])
