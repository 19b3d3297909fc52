"""Reward components: named functions from an episode to a number, weighed into one reward."""
