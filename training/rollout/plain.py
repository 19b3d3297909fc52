"""Guard for JSON values that others wrote, before they are rendered, journalled or sent on."""

from __future__ import annotations

import json
from typing import Any

MAX_DEPTH = 32


def json_problem(value: Any, text: str | None = None) -> str | None:
    """Why a decoded JSON value cannot be passed on (too deep, lone surrogates), or ``None`` when it can.

    Serialisers further on raise for both: pydantic beyond about 250 levels, UTF-8 at a lone surrogate. ``text``, the
    JSON that the value came from, spares the walk where its characters alone show that there is nothing to find.
    """
    shallow = text is not None and text.count("{") + text.count("[") <= MAX_DEPTH
    if not shallow and _depth_exceeds(value, MAX_DEPTH):
        return f"it is nested deeper than {MAX_DEPTH} levels"
    if text is None or "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            return "it contains half of a surrogate pair"
    return None


def _depth_exceeds(value: Any, limit: int) -> bool:
    if limit < 0:
        return True
    if isinstance(value, dict):
        return any(_depth_exceeds(item, limit - 1) for item in value.values())
    if isinstance(value, list):
        return any(_depth_exceeds(item, limit - 1) for item in value)
    return False
