"""Groups that a person chose, kept in a file until a worker reads them."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

Group = tuple[int, int]
"""Its step and its number."""


def groups_write(path: Path, groups: Collection[Group]) -> None:
    """Keep them; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(json.dumps(sorted(groups)))


def groups_read(path: Path) -> frozenset[Group]:
    """Those that were kept."""
    return frozenset((step, group) for step, group in json.loads(path.read_text()))
