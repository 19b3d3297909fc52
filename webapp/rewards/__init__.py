"""Reward specs, custom components, and the lab that tries them on recorded rollouts."""
