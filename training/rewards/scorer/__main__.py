"""`python -m training.rewards.scorer`: see ``worker``."""

from __future__ import annotations

from training.rewards.scorer.worker import main

main()
