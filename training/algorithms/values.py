"""What PPO makes of values: advantages, returns, the loss of the value head and how much it explains.

Generalised advantage estimation (Schulman et al. 2016) over the tokens that the model sampled: those of the environment
are no actions, so they have neither value nor advantage, and a token is followed by the next one that is the model's.
Tensors are (rows, tokens); ``mask`` is 1 for the model's own tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LEAST_VARIANCE = 1e-8
"""Below it returns are equal, and there is nothing to explain."""


class Estimate(NamedTuple):
    """Advantages, and the returns that values are to become; 0 outside the mask."""

    advantages: Tensor
    returns: Tensor


class ValueLoss(NamedTuple):
    """Sums over the model's tokens: the loss, and how many tokens' values were held back by the clip."""

    loss: Tensor
    clipped: Tensor


def at_last_token(rewards: Tensor, mask: Tensor) -> Tensor:
    """Rewards of rollouts (rows,) at each row's last own token; rows without one have none."""
    place = mask.shape[1] - 1 - mask.flip(1).long().argmax(1)
    found = torch.zeros(mask.shape, dtype=rewards.dtype, device=mask.device)
    found[torch.arange(len(rewards), device=mask.device), place] = rewards
    return found * mask


def estimate(rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float) -> Estimate:
    """GAE of rewards of tokens. An episode ends with its last own token, whose next value is 0.

    Computed in float64 on the processor: a column is a few small operations, and there are thousands of them.
    """
    given = (tensor.detach().to("cpu", torch.float64) for tensor in (rewards, values))
    own, (rewards_, values_) = mask.to("cpu").bool(), given
    advantages = torch.zeros_like(values_)
    later = next_value = torch.zeros(len(values_), dtype=torch.float64)
    for token in range(values_.shape[1] - 1, -1, -1):
        error = rewards_[:, token] + gamma * next_value - values_[:, token]
        later = torch.where(own[:, token], error + gamma * lam * later, later)
        next_value = torch.where(own[:, token], values_[:, token], next_value)
        advantages[:, token] = torch.where(own[:, token], later, 0.0)
    returns = (advantages + values_) * own
    return Estimate(*(found.to(values.device, torch.float32) for found in (advantages, returns)))


def constant_value(rewards: Tensor, mask: Tensor, *, gamma: float, lam: float) -> float | None:
    """The constant that is the mean of the returns which it gives as everyone's value; ``None`` without own tokens.

    With λ 1 that is the mean over the own tokens of what follows each, discounted. With a smaller one returns lean on
    values: b = c + d b, where c is the mean of the returns with values of 0 and d what a value of 1 adds to it. An
    episode ends somewhere, so d is below 1.
    """
    own = mask.bool()
    if not bool(own.any()):
        return None
    nothing, ones = torch.zeros(mask.shape), torch.ones(mask.shape)
    earned, added = (
        float(estimate(given, values, mask, gamma=gamma, lam=lam).returns[own].double().mean())
        for given, values in ((rewards, nothing.to(rewards.device)), (nothing.to(rewards.device), ones))
    )
    return earned / (1 - added)


def whitened(advantages: Tensor, mask: Tensor) -> Tensor:
    """Advantages with mean 0 and standard deviation 1 over the model's tokens; as they are with fewer than two."""
    own = advantages[mask.bool()]
    if own.numel() < 2:
        return advantages
    return (advantages - own.mean()) * torch.rsqrt(own.var() + LEAST_VARIANCE) * mask


def value_loss(values: Tensor, old: Tensor, returns: Tensor, mask: Tensor, reach: float) -> ValueLoss:
    """Half the squared error, and no less than that of a value which moves at most ``reach`` from the ``old`` one.

    A ``reach`` of 0 does not clip.
    """
    free = (values - returns) ** 2
    if not reach:
        return ValueLoss(0.5 * (free * mask).sum(), torch.zeros((), device=values.device))
    held = (old + (values - old).clamp(-reach, reach) - returns) ** 2
    return ValueLoss(0.5 * (torch.maximum(free, held) * mask).sum(), ((held > free) * mask).sum())


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> float | None:
    """The share of the returns' variance that values explain: 1 is all, 0 what a constant does, less than 0 is worse.

    ``None`` where the returns do not vary.
    """
    own = mask.bool()
    if own.sum() < 2:
        return None
    found, wanted = values[own].double(), returns[own].double()
    whole = float(wanted.var())
    return None if whole < LEAST_VARIANCE else 1.0 - float((wanted - found).var()) / whole
