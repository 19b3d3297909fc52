"""Rewind and play: a recorded rollout opened at one of its turns, where another player continues (docs/rewind.md)."""
