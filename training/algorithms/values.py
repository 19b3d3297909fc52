"""What PPO makes of values: advantages, returns, the loss of the value head and how much it explains.

Generalised advantage estimation (Schulman et al. 2016) over the tokens that the model sampled: those of the environment
are no actions, so they have neither value nor advantage, and a token is followed by the next one that is the model's.
Tensors are (rows, tokens); ``mask`` is 1 for the model's own tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from training.algorithms.kept_rows import KeptRowsTrainer, Rows

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
    """The constant that is the mean of the returns which it gives as every value; ``None`` without own tokens.

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


# --- Correction -----------------------------------------------------------------------------------------------------
# Importance correction: the loss of what another than the trainer's own arithmetic has sampled.
#
# vLLM, and bfloat16 where rows are batched otherwise, draw from a distribution that is close to the trainer's and not
# the same. TRL weighs such samples by the ratio of both (truncated importance sampling: Yao et al. 2025), but only
# where it runs vLLM itself. It samples through ``rollout_func`` here, so it is configured as if samples were those of
# its vLLM; what it would do with its own (hand over weights) is done by our engine.

TRUNCATED = "sampling/truncated_share"


class _OurEngineDoes:
    """In the place of TRL's own vLLM."""

    def sync_weights(self) -> None:
        """``Engine.weights_changed`` has its own place, before the turns of a step."""


class CorrectedTrainer(KeptRowsTrainer):
    """A trainer that corrects for its sampler once ``correct`` was called."""

    def correct(self) -> None:
        """From now on what is sampled is weighed by the ratio of trainer and sampler."""
        self.use_vllm = True
        self.vllm_generation: Any = _OurEngineDoes()
        self._last_loaded_step = -1  # TRL 1.16 sets it with its own vLLM only

    def _generate_and_score_completions(self, inputs: Any) -> Rows:
        output = super()._generate_and_score_completions(inputs)
        most, mode = self.vllm_importance_sampling_clip_max, self.vllm_importance_sampling_mode
        share = truncated_share(output, most, mode) if most is not None else None
        if share is not None:
            self.callback.extra[TRUNCATED] = share
        return output


def truncated_share(output: Rows, most: float, mode: str) -> float | None:
    """The share of ratios that were above ``most``; None where nothing was corrected or nothing was sampled.

    A ratio that was left out is 0, one that counts as the limit is ``most``. Ratios are (rows, tokens), or (rows, 1) of
    whole rollouts; those of ids that the model did not sample are no ratios.
    """
    ratio = output.get("importance_sampling_ratio")
    if ratio is None:
        return None
    mask = (output["completion_mask"] * output.get("tool_mask", 1)).bool()
    kept = ratio[mask] if mode.startswith("token") else ratio[mask.any(-1)].flatten()
    if not kept.numel():
        return None
    above = kept == 0 if mode.endswith("mask") else kept >= most
    return float(above.float().mean())


# --- Turn credit ----------------------------------------------------------------------------------------------------
# Advantages of rollouts laid over the tokens of their turns, and rewards at the turns that earned them.
#
# ``training/rollout/scoring.py`` says which turn has what; each row of a sampling carries that below ``CREDIT_FIELD``.

CREDIT_FIELD = "turn_credit"
Given = Sequence[dict[str, Any]]


class GroupTrainer(CorrectedTrainer):
    """TRL's GRPO trainer; with credit to turns each token has its turn's advantage."""

    def _generate_and_score_completions(self, inputs: Any) -> Rows:
        output = super()._generate_and_score_completions(inputs)
        output["advantages"] = over_turns(output["advantages"], inputs, output["completion_ids"].shape[1])
        return output


def over_turns(advantages: Tensor, rows: Given, columns: int) -> Tensor:
    """Advantages of rollouts (rows,) as those of their tokens (rows, columns); as they are without credit to turns."""
    if CREDIT_FIELD not in rows[0]:
        return advantages
    taken = torch.zeros(len(rows), columns)
    for row, given in enumerate(rows):
        credit = given[CREDIT_FIELD]
        if credit is not None:
            for start, end, less in zip(credit["starts"], credit["ends"], credit["less"], strict=True):
                taken[row, start:end] = less
    return advantages[:, None] - taken.to(advantages.device)


def paid_at_turns(rows: Given, mask: Tensor) -> Tensor:
    """What the environment paid with each turn's answer, at the turn's last token: (rows, tokens), 0 elsewhere and
    where ``mask`` is 0."""
    found = torch.zeros(mask.shape)
    for row, given in enumerate(rows):
        credit = given.get(CREDIT_FIELD)
        if credit is not None:
            own = mask[row].nonzero().flatten().tolist()
            for start, end, gain in zip(credit["starts"], credit["ends"], credit["gains"], strict=False):
                place = max((column for column in own if start <= column < end), default=None)
                if place is not None:
                    found[row, place] = gain
    return found.to(mask.device)
