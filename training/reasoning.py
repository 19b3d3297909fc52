"""The names under which a model's reasoning stands beside its message, in one place."""

from __future__ import annotations

REASONING = ("reasoning_content", "reasoning", "thinking", "thought")
"""Where data and servers write it (DeepSeek's, OpenRouter's and vLLM's, Ollama's, older data's); the first that holds
text is read."""
READ_BY_TEMPLATES = ("reasoning_content", "thinking", "reasoning")
"""Where chat templates read it, in the order in which they are tried; the first is where we write it."""
