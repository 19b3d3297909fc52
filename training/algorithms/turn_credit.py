"""Advantages of rollouts laid over the tokens of their turns, and rewards at the turns that earned them.

``training/rollout/credit.py`` says which turn has what; each row of a sampling carries that below ``CREDIT_FIELD``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from training.algorithms.correction import CorrectedTrainer, Rows

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
