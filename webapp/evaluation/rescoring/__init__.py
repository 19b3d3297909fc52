"""Recorded rollouts under specs that their runs did not have: missing values are computed and kept."""
