"""What the alarms ask of an episode beside its reward: how long it is, what it repeats, whether it was cut."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from envs.wire import Message
from training.rewards.base import Episode
from training.rewards.bfcl.codes import codes_of, from_codes

CHARS_PER_TOKEN = 4.0
"""How long a token is taken to be where nobody counted them."""
MAX_ACTION_CHARS = 4000
_ACTION = re.compile(
    r"<tool_call>.*?</tool_call>|Action:.*?Action Input:.*|(?:search|click)\[[^\]\n]*\]|^\s*\[\w+\(.*\)\]\s*$",
    re.DOTALL,
)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)


class Behaviour(NamedTuple):
    """``length`` in tokens; ``repeats`` of the ``actions`` are the same one; ``cut``: ended before the task did."""

    length: float
    actions: int
    repeats: int
    cut: bool


def behaviour_of(episode: Episode) -> Behaviour:
    """The facts of one episode."""
    seen = Counter(action for turn in episode.policy_messages for action in _actions(turn))
    return Behaviour(_length(episode), seen.total(), max(seen.values(), default=0), is_cut(episode))


def is_cut(episode: Episode) -> bool:
    """Whether the episode ended before its task did: out of budget, or with turns of the task never reached."""
    if episode.truncated:
        return True
    parts = episode.env_parts
    if "progress_reached" not in parts and isinstance(episode.row.get("user_turn_rewards"), list):
        truth = episode.row.get("ground_truth")
        parts = from_codes(codes_of(episode), len(truth) if isinstance(truth, list) else None)
    reached, whole = parts.get("progress_reached"), parts.get("progress_all")
    return reached is not None and whole is not None and reached > whole + 1e-9


def _length(episode: Episode) -> float:
    if episode.tokens:
        return float(episode.tokens)
    return sum(len(turn.content) + _arguments(turn) for turn in episode.policy_messages) / CHARS_PER_TOKEN


def _arguments(turn: Message) -> int:
    return sum(len(call.name) + len(json.dumps(call.arguments)) for call in turn.tool_calls or [])


def _actions(turn: Message) -> Iterator[str]:
    """The calls of a turn, also those that stand in its text."""
    if turn.tool_calls:
        for call in turn.tool_calls:
            yield f"{call.name} {json.dumps(call.arguments, sort_keys=True)}"[:MAX_ACTION_CHARS]
        return
    text = _THOUGHT.sub("", turn.content[: 2 * MAX_ACTION_CHARS])
    yield from (piece.strip()[:MAX_ACTION_CHARS] for piece in _ACTION.findall(text))
