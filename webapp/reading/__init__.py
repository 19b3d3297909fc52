"""Reading what a run played: one rollout, its group beside each other, and the tasks of a run over its steps."""
