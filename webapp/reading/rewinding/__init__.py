"""Rewind and play: a recorded rollout opened at one of its turns, where somebody else goes on (docs/rewind.md)."""
