"""Deleting runs, checkpoints and projects: the page that asks, what goes, and the worker that does it."""
