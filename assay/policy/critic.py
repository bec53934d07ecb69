"""The critic: a small head that reads the expected reward off the policy's hidden states."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.policy.load import Policy


class Critic(nn.Module):
    """Hidden states [N, H] to values [N] in float32: one hidden layer, and 0 for everything at the
    start.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, 1)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """The expected reward after each of the N positions. The policy learns from it too: they
        share their layers.
        """
        found: Tensor = self.outer(torch.tanh(self.inner(hidden.float())))
        return found.squeeze(-1)


def make_critic(policy: Policy, seed: int) -> Critic:
    """A critic that fits the policy's width, on its device. Equal seeds give equal critics."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Critic(policy.model.config.get_text_config().hidden_size).to(policy.device)
