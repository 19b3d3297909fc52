"""Where a value head sits in a model: code that writes weights has to leave it out. Loads no training library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

VALUE_HEAD = "value_head"
"""The head's name among the modules of a causal model."""


def causal_of(model: Any) -> Any:
    """The causal model inside an adapter."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def value_head_of(model: Any) -> Any:
    """The model's head (``training.policy.value_head``), or ``None``."""
    return getattr(causal_of(model), VALUE_HEAD, None)


@contextmanager
def without_value_head(model: Any) -> Iterator[None]:
    """Within the block the model is what it was before it got a head."""
    modules = getattr(causal_of(model), "_modules", {})
    head = modules.pop(VALUE_HEAD, None)
    try:
        yield
    finally:
        if head is not None:
            modules[VALUE_HEAD] = head
