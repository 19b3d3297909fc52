"""Which BFCL a row, an answer or a function document is of, told by its content.

``bfcl_versions.json`` holds the first 8 hex digits of the SHA-256 of every entry, answer and document that only v3
(gorilla c15b2a15) or only v4 (gorilla 6ea57973) has; what both have the same says nothing. Rows of one version played
by the other's classes go wrong without an error, so a dataset may hold only one.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from training.data.problems import RowError
from training.data.strict import strict_loads

_TABLE = Path(__file__).with_suffix(".json")


@cache
def _versions() -> dict[str, str]:
    """Digest → version."""
    table: dict[str, list[str]] = json.loads(_TABLE.read_text(encoding="ascii"))
    return {digest: version for version, digests in table.items() for digest in digests}


def digest(*parts: Any) -> str:
    """What the table knows a thing by."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]


def version_of_entry(entry_id: Any, config: Any) -> str:
    """The version of an entry by its scenario; empty where both have it."""
    return _versions().get(digest("entry", entry_id, config), "")


def version_of_answer(entry_id: Any, truth: Any) -> str:
    """The version of a ground truth; empty where both have it."""
    return _versions().get(digest("answer", entry_id, truth), "")


def version_of_document(document: dict[str, Any]) -> str:
    """The version of a function document; empty where both have it."""
    return _versions().get(digest("document", document), "")


class Watch:
    """Sees to it that one dataset holds one version: the one chosen, or the first that shows itself."""

    def __init__(self, chosen: str = "") -> None:
        self.version = chosen

    def see(self, found: str) -> None:
        """One thing's version. Raises ``RowError`` where it is the other one."""
        if found and self.version and found != self.version:
            raise RowError("bfcl_mixed", found=found, expected=self.version)
        self.version = self.version or found

    def see_row(self, entry_id: Any, config: Any, truth: Any, tagged: Any = None) -> None:
        """All that tells the version of a row. Raises ``RowError``."""
        if isinstance(tagged, str):
            self.see(f"v{tagged.lower().lstrip('v')[:1]}")
        if isinstance(config, str):
            config = strict_loads(config)
        self.see(version_of_entry(entry_id, config))
        if truth is not None:
            self.see(version_of_answer(entry_id, truth))

    def see_verl_row(self, value: dict[str, Any]) -> None:
        """The version of a row whose BFCL entry stands in verl's interaction arguments. Raises ``RowError``."""
        info = value.get("extra_info")
        kwargs = info.get("interaction_kwargs") if isinstance(info, dict) else None
        if isinstance(kwargs, dict) and kwargs.get("involved_classes") is not None:
            self.see_row(kwargs.get("id"), kwargs.get("initial_config"), kwargs.get("ground_truth"))
