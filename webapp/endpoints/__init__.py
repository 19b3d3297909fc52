"""OpenAI-compatible endpoints of a project: where they are, their key, what they cost and what was spent there."""
