"""Where a value head starts: at the mean of the first returns, and with updates of its own before the policy has any.

A head that begins at 0 spends tens of updates on its way to the mean return. All its weights take part in that way, so
what it says of single tokens is noise meanwhile, and grows with it. So its bias starts at the mean
(``constant_value``), and ``ppo.critic_warmup`` updates of the head alone follow, each over every own token of the first
sampling.

The policy stands still meanwhile, and so do its hidden states. The gradient of ½ mean (w·h + b − R)² hangs on them
through sums over the tokens alone, so one forward pass is enough for any number of updates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.policy.value_head import ValueHead


class Sums:
    """The sums over tokens that the gradient of a squared error is made of, in float64 on the processor.

    With x = (h, 1): ``square`` is the sum of x xᵀ, of shape (width + 1, width + 1), ``goal`` that of x R, (width + 1,).
    """

    def __init__(self, width: int) -> None:
        self.tokens = 0
        self.square = torch.zeros(width + 1, width + 1, dtype=torch.float64)
        self.goal = torch.zeros(width + 1, dtype=torch.float64)

    def add(self, hidden: Tensor, returns: Tensor) -> None:
        """Hidden states (tokens, width) and the returns (tokens,) from there on."""
        given = torch.cat([hidden.float(), torch.ones_like(hidden[:, :1], dtype=torch.float32)], dim=1)
        self.tokens += len(given)
        self.square += (given.T @ given).to("cpu", torch.float64)
        self.goal += (given.T @ returns.to(given.device, torch.float32)).to("cpu", torch.float64)


def warm_up(head: ValueHead, sums: Sums, updates: int, rate: float) -> None:
    """So many updates of the head by AdamW, at its own rate from the first on and without decay, over all the tokens.

    The optimiser is gone afterwards: the moments of the one that trains the policy begin with the policy's first
    update.
    """
    weights = torch.cat([head.weight.detach()[0], head.bias.detach()]).to("cpu", torch.float64).requires_grad_(True)
    optimizer = torch.optim.AdamW([weights], lr=rate, weight_decay=0.0)
    for _update in range(updates):
        weights.grad = (sums.square @ weights.detach() - sums.goal) / sums.tokens
        optimizer.step()
    with torch.no_grad():
        head.weight.copy_(weights[None, :-1])
        head.bias.copy_(weights[-1:])
