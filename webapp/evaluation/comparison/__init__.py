"""Comparing runs: who played the same tasks better, by how much, and how they differ."""
