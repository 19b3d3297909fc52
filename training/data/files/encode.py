"""A row as a line of JSON that every reader here takes again."""

from __future__ import annotations

import json
from typing import Any

from training.data.limits import MAX_LINE_BYTES
from training.data.problems import RowError
from training.data.strict import check_tree

to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def encoded(normal: dict[str, Any], *, known: bool = False) -> str:
    """The line of a row. Raises ``RowError`` where normalising made it break a limit.

    ``known``: nothing of it was made here, so that what passed the reader needs no second look.
    """
    if not known:
        check_tree(normal)
    line = to_json(normal) + "\n"
    if len(line) > MAX_LINE_BYTES // 4 and len(line.encode()) > MAX_LINE_BYTES:
        raise RowError("row_long", limit=MAX_LINE_BYTES >> 20)
    return line
