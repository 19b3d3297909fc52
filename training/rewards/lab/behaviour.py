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
_BEGINS = re.compile(r"<tool_call>|Action:|(?:search|click)\[")
_WHOLE = re.compile(r"\s*\[\w+\(.*\)\]\s*", re.DOTALL)


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
    text = _without_thoughts(turn.content[: 2 * MAX_ACTION_CHARS])
    yield from (piece.strip()[:MAX_ACTION_CHARS] for piece in _written(text))


def _without_thoughts(text: str) -> str:
    """The text without its closed ``<think>`` parts; each character is looked at once, whatever is written."""
    kept, at = [], 0
    while (begin := text.find("<think>", at)) >= 0 and (end := text.find("</think>", begin)) >= 0:
        kept.append(text[at:begin])
        at = end + len("</think>")
    return "".join([*kept, text[at:]])


def _written(text: str) -> Iterator[str]:
    """Calls in the three ways of writing them: tags, Action and Action Input, ``search[…]``; or one list of calls."""
    if _WHOLE.fullmatch(text):
        yield text
        return
    ends, at = _Ends(text), 0
    while (found := _BEGINS.search(text, at)) is not None:
        begin, at = found.span()
        if found[0] == "Action:":
            if ends.after("Action Input:", at) >= 0:
                yield text[begin:]
                return
        elif (end := ends.after("</tool_call>", at) if found[0] == "<tool_call>" else ends.in_line("]", at)) >= 0:
            yield text[begin:end]
            at = end


class _Ends:
    """Where the next end of something stands. Places are asked for in rising order, so each is looked for once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next: dict[str, int] = {}

    def after(self, mark: str, at: int) -> int:
        """The place behind the next ``mark`` from ``at`` on, or -1."""
        known = self._next.get(mark, 0)
        if known >= 0 and known - len(mark) < at:
            place = self._text.find(mark, at)
            known = self._next[mark] = place + len(mark) if place >= 0 else -1
        return known

    def in_line(self, mark: str, at: int) -> int:
        """The same, unless the line ends before it."""
        end, line = self.after(mark, at), self.after("\n", at)
        return end if line < 0 or end < line else -1
