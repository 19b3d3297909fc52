"""What a replay found, as the socket, the API and pages show it."""

from __future__ import annotations

from typing import Any

from training.rollout.rewinding import Rewound

TEXT_MAX = 4_000


def check_view(found: Rewound) -> dict[str, Any]:
    """The turns that were taken again, whether their answers are the recorded ones, and else the first other one."""
    other = found.difference
    return {
        "turns": found.turns,
        "checked": found.checked,
        "over": found.over,
        "seconds": found.seconds,
        "differing": found.differing,
        "difference": None
        if other is None
        else {
            "turn": other.turn,
            "what": other.what,
            "recorded": _shorten(other.recorded),
            "now": _shorten(other.now),
        },
    }


def _shorten(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]} … (+{len(text) - TEXT_MAX})"
