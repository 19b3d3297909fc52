"""Presets in the words of the interface."""

from __future__ import annotations

from django.utils.translation import get_language

from training.presets import Text


def in_language(text: Text) -> str:
    """A preset's text in the reader's language."""
    return text.zh if (get_language() or "en").startswith("zh") else text.en
