"""Runs of other trainers, imported; and runs of ours, exported."""
