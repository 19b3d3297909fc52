"""The codes of a BFCL episode: −1 a call, −2 a failed call, −3 an unreadable reply, 0 or 1 a turn's score.

Recorded codes stand in the row under ``user_turn_rewards``, verl's name. Without them the environment's replies show
which rounds were calls, failures and unreadable; which turns were solved they do not show.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from training.rewards.base import Episode
from training.rewards.turns import Turn, turns_of

CALL, FAILED_CALL, UNREADABLE = -1, -2, -3
Codes = Sequence[float | None]

RESULTS_MARK = "Execution results:"
FAILED_PREFIX = "Error during execution:"
# Results of calls that were not run, because the turn was over.
NOT_RUN = ("Not executed.", "The turn is over:")
MAX_CHARS = 65_536


def codes_of(episode: Episode) -> Codes:
    """One code a round; ``None`` is a round that ended a turn with an unknown score."""
    recorded = episode.row.get("user_turn_rewards")
    if isinstance(recorded, list) and all(isinstance(code, (int, float)) for code in recorded):
        return recorded
    return [_code(turn) for turn in turns_of(episode)]


def from_codes(codes: Codes, turns: int | None) -> dict[str, float]:
    """Every part by name that the codes tell; ``turns`` is how many the whole task has, where that is known."""
    called, failed = codes.count(CALL), codes.count(FAILED_CALL)
    parts = {
        "format_reward": (len(codes) - codes.count(UNREADABLE)) / len(codes) if codes else 0.0,
        "tool_call_reward": called / (called + failed) if called + failed else 0.0,
        "is_tool_call": float(called + failed > 0),
    }
    scores = [code for code in codes if code is not None and code >= 0]
    if len(scores) < sum(code is None or code >= 0 for code in codes):
        return parts
    if codes:
        parts["progress_reached"] = sum(scores) / len(scores) if scores else 0.0
    if codes and turns:
        parts["progress_all"] = sum(scores) / turns
        parts["task_success"] = float(sum(scores) == turns)
    return parts


def _code(turn: Turn) -> float | None:
    if not turn.answers:
        return None
    first = turn.answers[0]
    text = first.content[:MAX_CHARS].lstrip()
    if first.role == "tool" and first.tool_call_id and turn.said.tool_calls:
        results = [answer.content for answer in turn.answers if answer.role == "tool" and answer.tool_call_id]
        complaint = turn.answers[-1].content if not turn.answers[-1].tool_call_id else ""
        if results[0].startswith(NOT_RUN):
            return UNREADABLE if complaint.startswith("Error:") else None
        return FAILED_CALL if any(result.startswith(FAILED_PREFIX) for result in results) else CALL
    if RESULTS_MARK in text[:200]:
        return FAILED_CALL if _any_failed(text.split(RESULTS_MARK, 1)[1]) else CALL
    return UNREADABLE if text.startswith("Error:") else None


def _any_failed(text: str) -> bool:
    """Whether one of the listed results is a failure; of a broken list, whether it reads like one."""
    try:
        results = json.JSONDecoder().raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        return f'"{FAILED_PREFIX}' in text
    return isinstance(results, list) and any(str(item).startswith(FAILED_PREFIX) for item in results)
