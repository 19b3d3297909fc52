"""Frames: JSON text for the browser, valid for ``JSON.parse`` with any values, and of bounded size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from webapp.common.text import clean_json
from webapp.runs.records.selectors import KEYS, Rows

FRAME_BYTES = 4 << 20
_HEAD_ROOM = 64 << 10


def encode(value: Any) -> str:
    """JSON without NaN; ASCII only, so that a lone surrogate or a separator cannot break a frame."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(clean_json(value), allow_nan=False, separators=(",", ":"))


def frames(head: dict[str, Any], rows: Rows, *, before: int, then: str = "changes") -> Iterator[str]:
    """The head with its rows as one frame, or as several of at most ``FRAME_BYTES``.

    Further frames have the type ``then``. All but the last carry ``seq`` = ``before``: a reader that loses the line
    between two of them asks again from there, and no row is lost.
    """
    parts: dict[str, list[str]] = {key: [] for key in KEYS if key in rows}
    size, kind = 0, str(head["type"])
    for key in parts:
        for row in rows[key]:
            text = encode(row)
            if size and size + len(text) > FRAME_BYTES - _HEAD_ROOM:
                yield _encode_frame(head | {"type": kind, "seq": before}, parts)
                parts, size, kind = {name: [] for name in parts}, 0, then
            parts[key].append(text)
            size += len(text) + 1
    yield _encode_frame(head | {"type": kind}, parts)


def _encode_frame(head: dict[str, Any], parts: dict[str, list[str]]) -> str:
    body = "".join(f',"{key}":[{",".join(texts)}]' for key, texts in parts.items())
    return f"{encode(head)[:-1]}{body}}}"
