"""Saved comparisons, what people say below them, and links that open one without an account."""
