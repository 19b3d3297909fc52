"""RLOO: REINFORCE with the mean reward of a group's other rollouts as the baseline of each.

Ahmadian et al. 2024, *Back to Basics*. The rollouts, rewards and journal are GRPO's, and so is TRL's trainer: its
``RLOOTrainer`` 1.16 takes neither our rollouts nor a mask of the environment's tokens. What differs from GRPO:

1. The advantage is the reward less the mean of the others', without a division; with one rollout left it is 0.
2. The pull of the reference is part of the reward: ``r - β Σ (log π - log π_ref)`` over the rollout's own tokens, with
   the log-probabilities that it was sampled with. The loss has no KL term.
3. A rollout is one action: its loss is ``-A Σ log π`` over its own tokens, averaged over rollouts. TRL's ``luspo`` with
   one update of each sampling is just that: the ratio is 1, and its derivative the mean of the tokens', which
   ``luspo`` takes times the length. With credit to turns each turn is an action, and its advantage that of its tokens.
"""

from __future__ import annotations

from typing import Any

import torch

from training.algorithms.pull import PullInRewardTrainer
from training.algorithms.rollouts import PARTS_FIELD
from training.algorithms.values import Rows, over_turns


class RlooTrainer(PullInRewardTrainer):
    """TRL's GRPO trainer with the advantages of RLOO."""

    def _generate_and_score_completions(self, inputs: Any) -> Rows:
        output = super()._generate_and_score_completions(inputs)
        gains = output["advantages"]  # rewards less the group's mean, which the other baseline does not depend on
        if (pull := self.take_pull(output)) is not None:
            gains = gains - pull.sum(-1)
        kept = torch.tensor([row[PARTS_FIELD] is not None for row in inputs], device=gains.device)
        found = leave_one_out(gains, kept, self.num_generations or len(gains))
        output["advantages"] = over_turns(found, inputs, output["completion_ids"].shape[1])
        return output


def leave_one_out(rewards: torch.Tensor, kept: torch.Tensor, size: int) -> torch.Tensor:
    """Each reward less the mean of the other kept ones of its group, shape (rows,); 0 where there is no other, and for
    rows that are not kept. ``size`` consecutive rows are a group."""
    groups, mask = rewards.view(-1, size), kept.view(-1, size)
    held = torch.where(mask, groups, torch.zeros_like(groups))
    others = mask.sum(1, keepdim=True) - 1
    baseline = (held.sum(1, keepdim=True) - held) / others.clamp(min=1)
    return torch.where(mask & (others > 0), groups - baseline, torch.zeros_like(groups)).flatten()
