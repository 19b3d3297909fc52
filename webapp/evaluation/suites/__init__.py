"""Suites: named, versioned sets of tasks with weights that a project measures its models by."""
