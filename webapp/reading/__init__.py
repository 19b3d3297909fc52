"""Reading what a run played: one rollout, its group side by side, and the tasks of a run over its steps."""
