"""Trainers that pay the distance from the reference out of the rewards, in place of a term of the loss."""

from __future__ import annotations

from typing import Any

import torch

from training.algorithms.seam import disable_gradient_checkpointing
from training.algorithms.values import CorrectedTrainer, Rows


class PullInRewardTrainer(CorrectedTrainer):
    """TRL's GRPO trainer without a KL term: ``self.beta`` keeps the reference, and stands in the rewards."""

    def take_pull(self, output: Rows) -> torch.Tensor | None:
        """β (log π − log π_ref) of each own token, shape (rows, tokens), taken out of a sampling; ``None`` with β 0.

        π is the policy that sampled, as the trainer computes it: the sampler's own figures hang on what was batched
        beside a turn, and so on timing.
        """
        if "ref_per_token_logps" not in output:
            return None
        policy = output["old_per_token_logps"] if "old_per_token_logps" in output else self._logprobs(output)
        gap = (policy - output.pop("ref_per_token_logps")) * own_tokens(output)
        self._metrics["train"]["kl"].append(float(gap.sum()) / max(1, int(output["num_items_in_batch"])))
        return self.beta * gap

    def _logprobs(self, output: Rows) -> torch.Tensor:
        """The trainer's log-probabilities of a sampling's completions, (rows, tokens), without dropout."""
        ids, mask, keep = forward_inputs(output)
        arguments: Any = self.args
        model: Any = self.model
        plainly = disable_gradient_checkpointing(model, arguments.gradient_checkpointing_kwargs)
        model.eval()
        try:
            with torch.no_grad(), plainly:
                found: torch.Tensor = self._get_per_token_logps_and_entropies(
                    model, ids, mask, keep, batch_size=arguments.per_device_train_batch_size
                )[0]
        finally:
            model.train()
        return found

    def _compute_loss(self, model: Any, inputs: Rows) -> torch.Tensor:
        beta, self.beta = self.beta, 0.0
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self.beta = beta


def forward_inputs(rows: Rows) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Ids and mask (rows, tokens) of prompts and completions, and how many columns the completions have."""
    ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], dim=1)
    mask = torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1)
    return ids, mask, rows["completion_ids"].size(1)


def own_tokens(output: Rows) -> torch.Tensor:
    """1 for the tokens that the model sampled and that are learned from, shape (rows, tokens)."""
    mask: torch.Tensor = output["completion_mask"] * output["tool_mask"]
    return mask
