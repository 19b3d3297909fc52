"""Talking with models."""
