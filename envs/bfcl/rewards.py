"""Rewards from the codes of an episode: −1 call, −2 failed call, −3 unreadable reply, 0 or 1 a turn's score."""

from __future__ import annotations

from collections.abc import Sequence

CALL, FAILED_CALL, UNREADABLE = -1, -2, -3


def reward_parts(codes: Sequence[int], turns: int) -> dict[str, float]:
    """Every part by name, each from 0 to 1.

    ``progress_reached`` is upstream's score: the mean over the turns that were reached, so that an episode cut after
    one good turn has 1.0. ``progress_all`` divides by all turns. Upstream's stage-1 score, from 0 to 2, is
    ``is_tool_call * (format_reward + tool_call_reward)``.
    """
    scores = [code for code in codes if code >= 0]
    called, failed = codes.count(CALL), codes.count(FAILED_CALL)
    passed = sum(scores)
    return {
        "progress_reached": passed / len(scores) if scores else 0.0,
        "progress_all": passed / turns,
        "format_reward": (len(codes) - codes.count(UNREADABLE)) / len(codes) if codes else 0.0,
        "tool_call_reward": called / (called + failed) if called + failed else 0.0,
        "is_tool_call": float(called + failed > 0),
        "task_success": float(passed == turns),
    }
