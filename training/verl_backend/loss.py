"""The loss of one update in verl's workers: verl's own, divided by what our trainer on one device divides it by.

verl divides the sums of a mini batch by its own tokens, or its own rows with excluded ones among them. Here an update
is divided by its share of the sampling: all tokens, or all rows that teach, over the number of mini batches. So a token
counts the same whichever update learns from it, and an excluded rollout counts nowhere. The entropy bonus is the mean
over the tokens of the update, times its rows over its share of them. The distance from the reference is weighed by the
policy's ratio, as TRL's is: verl's is not, which is the same only while the ratio is 1. Figures are means over the
update's tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.trainer.ppo.core_algos import agg_loss
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding

SHARE_OF_TOKENS, SHARE_OF_ROWS, OWN_ROWS = "share_of_tokens", "share_of_rows", "own_rows"
"""Sent to each device with the rows of an update: what its sums are divided by, and how many of its rows teach."""
ROWS = ("response_mask", "old_log_probs", "advantages", "ref_log_prob")


def update_loss(
    config: Any, kl_weight: float, model_output: Any, data: Any, dp_group: Any = None
) -> tuple[torch.Tensor, dict[str, Any]]:
    """The loss of a micro batch and its part of the update's figures. verl adds both up over micro batches, and takes
    the mean over devices, so each is as many times too large as there are devices. ``config`` is verl's of the actor
    without a KL loss, whose weight is given."""
    own = max(1.0, float(data["batch_num_tokens"])) / data["dp_size"]
    log_prob = no_padding_2_padding(model_output["log_probs"], data)
    given = {name: model_output[name] for name in model_output if name != "entropy"}
    tu.assign_non_tensor(data, batch_num_tokens=data[SHARE_OF_TOKENS], global_batch_size=data[SHARE_OF_ROWS])
    loss, found = ppo_loss(config, given, data, dp_group)
    rows = data.select(*(name for name in ROWS if name in data)).to_padded_tensor()
    mask, ratio = rows["response_mask"].to(bool), torch.exp(log_prob - rows["old_log_probs"])
    figures = _clipped(config, ratio.detach(), rows["advantages"])
    if kl_weight:
        gap = rows["ref_log_prob"] - log_prob
        figures["kl"] = ratio * (torch.exp(gap) - gap - 1)
        loss = loss + kl_weight * agg_loss(figures["kl"], mask, config.loss_agg_mode, **config.global_batch_info)
    if "entropy" in model_output:
        figures["entropy"] = no_padding_2_padding(model_output["entropy"], data)
        if config.entropy_coeff:
            weight = config.entropy_coeff * data[OWN_ROWS] / data[SHARE_OF_ROWS]
            loss = loss - weight * (figures["entropy"] * mask).sum() / own
    means = {name: (value * mask).sum().detach() / own for name, value in figures.items()}
    return loss, found | {name: Metric(AggregationType.SUM, value) for name, value in means.items()}


def _clipped(config: Any, ratio: torch.Tensor, gain: torch.Tensor) -> dict[str, torch.Tensor]:
    """1 for each token whose ratio is clipped, shape (rows, tokens)."""
    low = (ratio < 1 - config.clip_ratio_low) & (gain < 0)
    high = (ratio > 1 + config.clip_ratio_high) & (gain > 0)
    found = {"clipped_low": low, "clipped_high": high, "clipped": low | high}
    return {name: value.float() for name, value in found.items()}
