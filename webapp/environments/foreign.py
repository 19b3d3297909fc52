"""Ask a server that speaks a foreign protocol, in a process of its own: run as a script, without Django.

Run it with ``-P``: this folder on Python's path would hide modules of the standard library (``selectors``).

The adapters of ``training.rollout.protocols`` read their token and allow-list from the environment, as in a trainer; a
process that serves many environments has no one value for these. Reads ``EnvironmentConfig`` values as JSON from
standard input; prints ``{"facts": {…}}`` or ``{"error": ErrorInfo}``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from training.config import EnvironmentConfig
from training.errors import EnvironmentProtocolError, TiltyardError

FACTS = ("name", "version", "slots", "free", "deterministic")
MAX_TEXT = 200


def main() -> int:
    """One question."""
    values = json.load(sys.stdin)
    try:
        answer = {"facts": _facts(values)}
    except TiltyardError as exc:
        answer = {"error": exc.info.model_dump(mode="json")}
    print(json.dumps(answer))
    return 0


def _facts(values: dict[str, Any]) -> dict[str, Any]:
    try:
        from training.rollout.protocols import check_options, check_server
    except ImportError as exc:
        raise EnvironmentProtocolError("Servers of this protocol cannot be asked by this version.") from exc
    config = EnvironmentConfig(**values)
    check_options(config.protocol, config.options)
    facts = check_server(config, config.url)
    found = {name: getattr(facts, name) for name in FACTS}
    return {name: value[:MAX_TEXT] if isinstance(value, str) else value for name, value in found.items()}


if __name__ == "__main__":
    raise SystemExit(main())
