"""What a job's options mean where verl trains it, for its settings and for its memory."""

from __future__ import annotations

from training.config.job import JobConfig

TOKENS = 16_384
"""verl's own limit of a micro batch's tokens."""


def needs_entropy(config: JobConfig) -> bool:
    """Whether an update computes the entropy: for a bonus, or because the one before has changed it."""
    return config.grpo.entropy_coef != 0 or config.updates_per_step > 1


def tokens_of_micro_batch(config: JobConfig) -> int:
    """The most tokens of a micro batch where no number of rows is set; the longest rollout has room in it."""
    return config.optim.max_tokens_per_micro_batch or max(TOKENS, config.longest_text)
