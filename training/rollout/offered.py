"""Which tools a group's prompts named, told once: the same list comes with thousands of groups."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from training.rollout.finished import Rollout

Tools = list[dict[str, Any]]


class Offered:
    """Remembers the lists of tools that an attempt's journal has."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def of(self, members: Sequence[Rollout]) -> dict[str, Any]:
        """Fields of the group's event: the digest of its tools, with the list itself where the digest is new."""
        tools = next((rollout.trajectory.tools for rollout in members if rollout.trajectory.tools), None)
        if tools is None:
            return {}
        digest = hashlib.blake2b(json.dumps(tools, sort_keys=True).encode(), digest_size=8).hexdigest()
        fresh = digest not in self._told
        self._told.add(digest)
        return {"tools_digest": digest, "tools": tools} if fresh else {"tools_digest": digest}
