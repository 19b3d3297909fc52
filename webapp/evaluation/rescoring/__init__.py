"""Recorded rollouts under specs that their runs did not have: what was not recorded is computed and kept."""
