"""The reward lab: what a reward does to recorded rollouts, seen before a run is spent on it."""
