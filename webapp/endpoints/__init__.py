"""OpenAI-compatible endpoints of a project: their address, key, prices and spending."""
