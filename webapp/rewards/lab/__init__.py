"""The reward lab: the effect of a reward on recorded rollouts, before a run is spent on it."""
