"""Evaluation: how good a contestant is, which of two is better, and how sure that is. Numbers only; needs numpy."""
