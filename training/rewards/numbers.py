"""The numbers in texts: ``1,053``, ``$12.50``, ``-3``, ``40%``; ``1/2`` is two."""

from __future__ import annotations

import math
import re

MAX_CHARS = 100_000
# Not inside a word of Latin letters, but right after a Chinese character: "有25个".
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.\u00c0-\u024f])[-−+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,100})(?:\.\d{1,100})?(?:[eE][-+]?\d{1,3})?"
)


def numbers(text: str) -> list[float]:
    """The finite numbers of a text's last ``MAX_CHARS`` characters, in order."""
    found = (_to_float(piece) for piece in _NUMBER.findall(text[-MAX_CHARS:]))
    return [number for number in found if math.isfinite(number)]


def last_number_at(text: str) -> tuple[int, int] | None:
    """Where the last of ``numbers`` stands."""
    skipped = max(0, len(text) - MAX_CHARS)
    found = [match.span() for match in _NUMBER.finditer(text[skipped:]) if math.isfinite(_to_float(match[0]))]
    return (found[-1][0] + skipped, found[-1][1] + skipped) if found else None


def first_number(text: str) -> float | None:
    """The first number of a text."""
    match = _NUMBER.search(text[:MAX_CHARS])
    number = _to_float(match[0]) if match else math.nan
    return number if math.isfinite(number) else None


def _to_float(piece: str) -> float:
    return float(piece.replace(",", "").replace("−", "-"))
