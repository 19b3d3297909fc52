"""Deleting runs, checkpoints, projects and files: hidden at once, gone by a worker, never half."""
