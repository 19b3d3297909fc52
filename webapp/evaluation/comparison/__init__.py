"""Comparing runs: who played the same tasks better, by how much, and what they differ in."""
