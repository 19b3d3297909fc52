"""Blind votes: people prefer one of two episodes of a task without knowing who played, and the results of their
votes."""
