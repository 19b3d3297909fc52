"""The rollout loop: many trajectories at once, each with its own environment session, none waiting for another."""
