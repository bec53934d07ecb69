"""The critic (value head): predicts the expected reward from the policy's hidden states."""

import torch
from torch import Tensor, nn

from assay.policy.load_model import Policy


class Critic(nn.Module):
    """Hidden states [N, H] to values [N] in float32, through one hidden layer; at first all 0."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, 1)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """The expected reward at each of the N positions. Its gradient reaches the policy too."""
        values: Tensor = self.outer(torch.tanh(self.inner(hidden.float())))
        return values.sum(-1)  # of one number: FSDP wants no view


def make_critic(policy: Policy, seed: int) -> Critic:
    """A critic for the policy's hidden size, on its device. Equal seeds give equal critics."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Critic(policy.model.config.get_text_config().hidden_size).to(policy.device)
