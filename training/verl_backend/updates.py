"""One update of the weights by verl: its rows over the devices, what its loss is divided by, and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from verl.trainer.ppo.core_algos import agg_loss
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric, reduce_metrics
from verl.utils.py_functional import rename_dict
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding

SHARE_OF_TOKENS, SHARE_OF_ROWS, OWN_ROWS = "share_of_tokens", "share_of_rows", "own_rows"
"""Sent to each device with the rows of an update: what its sums are divided by, and how many of its rows teach."""

# The loss of one update in verl's workers: verl's own, divided by what our trainer on one device divides it by.
#
# verl divides the sums of a mini batch by its own tokens, or its own rows with excluded ones among them. Here an update
# is divided by its share of the sampling: all tokens, or all rows that teach, over the number of mini batches. So a
# token counts the same whichever update learns from it, and an excluded rollout counts nowhere. The entropy bonus is
# the mean over the tokens of the update, times its rows over its share of them. The distance from the reference is
# weighed by the policy's ratio, as TRL's is: verl's is not, which is the same only while the ratio is 1. Figures are
# means over the update's tokens.

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


class Dealt(NamedTuple):
    """The rows of each update of a sampling, by their places in verl's batch; those that teach come first.

    The shares are the sampling's tokens and rows that teach, over the number of mini batches. ``taught`` counts the
    rows that teach in each.
    """

    rows: list[list[int]]
    share_of_tokens: float
    share_of_rows: float
    taught: tuple[int, ...] = ()

    @classmethod
    def of(cls, teaching: list[list[int]], tokens: Sequence[int], each: int) -> Dealt:
        """Updates of ``each`` rows, filled up with rows that teach nothing: devices get as many rows each."""
        silent = iter([row for row, count in enumerate(tokens) if not count])
        rows = [own + [next(silent) for _ in range(each - len(own))] for own in teaching]
        taught, parts = tuple(map(len, teaching)), len(teaching)
        return cls(rows, sum(tokens) / parts, sum(taught) / parts, taught)

    def teaching(self, number: int) -> bool:
        """Whether anything is learned from a mini batch."""
        return self.taught[number] > 0

    def asked(self, number: int) -> dict[str, Any]:
        """What the loss of a mini batch has to know."""
        shares = {SHARE_OF_TOKENS: self.share_of_tokens, SHARE_OF_ROWS: self.share_of_rows}
        return shares | {OWN_ROWS: self.taught[number]}


def trained_on(workers: Any, batch: Any, rows: Sequence[int], asked: dict[str, Any], shares: int) -> dict[str, Any]:
    """Make one update by the rows at these places of a batch; verl's figures of it.

    ``asked`` is sent with the rows. Each of ``shares`` gets as many, and about as much work: a device, or some that
    share their rows.
    """
    work = calculate_workload(torch.tensor([batch.tags[row]["seq_len"] for row in rows], dtype=torch.int64))
    parts = get_seqlen_balanced_partitions(work, k_partitions=shares, equal_size=True)
    own = batch.select_keys([batch.keys[rows[place]] for part in parts for place in part])
    own.extra_info.update(asked)
    own.extra_info.update(
        distillation_use_topk=False,
        distillation_only=False,
        global_batch_size=len(rows),
        mini_batch_size=len(rows),
        epochs=1,
        dataloader_kwargs={"shuffle": False},
    )
    figures = workers.update_actor(own)["metrics"]
    found: dict[str, Any] = reduce_metrics(rename_dict(figures, "actor/"))
    return found
