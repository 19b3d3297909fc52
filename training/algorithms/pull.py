"""Trainers that pay the distance from the reference out of the rewards, in place of a term of the loss."""

from __future__ import annotations

from typing import Any

import torch

from training.algorithms.correction import CorrectedTrainer, Rows


class PullInRewardTrainer(CorrectedTrainer):
    """TRL's GRPO trainer without a KL term: ``self.beta`` keeps the reference, and stands in the rewards."""

    def take_pull(self, output: Rows) -> torch.Tensor | None:
        """β (log π − log π_ref) of each own token, shape (rows, tokens), taken out of a sampling; ``None`` with β 0.

        π is the policy that sampled, as the trainer computes it where it did.
        """
        if "ref_per_token_logps" not in output:
            return None
        policy = output.get("old_per_token_logps", output["sampling_per_token_logps"])
        gap = (policy - output.pop("ref_per_token_logps")) * own_tokens(output)
        self._metrics["train"]["kl"].append(float(gap.sum()) / max(1, int(output["num_items_in_batch"])))
        return self.beta * gap

    def _compute_loss(self, model: Any, inputs: Rows) -> torch.Tensor:
        beta, self.beta = self.beta, 0.0
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self.beta = beta


def own_tokens(output: Rows) -> torch.Tensor:
    """1 for the tokens that the model sampled and that are learned from, shape (rows, tokens)."""
    mask: torch.Tensor = output["completion_mask"] * output["tool_mask"]
    return mask
