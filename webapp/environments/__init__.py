"""Environments, the keeper of their servers, and the playground."""
