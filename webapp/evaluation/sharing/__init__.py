"""Saved comparisons, their comments, and links that open one without an account."""
