"""Text and JSON that PostgreSQL and ``JSON.parse`` both accept."""

from __future__ import annotations

import math
import re
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")
NUL_SHOWN = "\u2400"
REPLACEMENT = "\ufffd"


def clean_text(text: str) -> str:
    """The text with NUL and lone surrogates, which PostgreSQL refuses, made visible."""
    if "\x00" in text:
        text = text.replace("\x00", NUL_SHOWN)
    return text if text.isascii() else _SURROGATE.sub(REPLACEMENT, text)


def clean_json(value: Any) -> Any:
    """The value with clean texts and keys, and ``None`` for NaN and infinities."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    return value


def finite(value: float | None) -> float | None:
    """The number, or ``None`` where JSON has no word for it."""
    return value if value is None or math.isfinite(value) else None
