"""Preference pairs: what a row asks, and the two answers of which one is the better.

A row of the format ``preference`` keeps ``chosen`` and ``rejected`` as they stood: texts, or lists of messages, alone
or with the beginning that both have in common.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from training.data.messages import messages_of, plain
from training.data.problems import RowError
from training.data.schema import Message, Row

CHOSEN, REJECTED = "chosen", "rejected"
_TURN = "\n\nAssistant:"


class Pair(NamedTuple):
    """The conversation up to where the two answers begin, and the messages of each."""

    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]


def pair_of(row: Row) -> Pair | None:
    """The row's pair; ``None`` where it has none, or its answers cannot be told from each other."""
    answers = [_answer(row, row.extra.get(name)) for name in (CHOSEN, REJECTED)]
    chosen, rejected = answers
    if not chosen or not rejected or chosen == rejected:
        return None
    return Pair(row.messages, chosen, rejected)


def _answer(row: Row, value: Any) -> list[Message]:
    """The messages of an answer, without what it repeats of the prompt; empty where nothing can be learned of it."""
    if isinstance(value, str):
        text = value.rpartition(_TURN)[2].strip() if "prompt" not in row.extra and _TURN in value else value
        return [plain("assistant", text)] if text else []
    if not isinstance(value, list) or not value:
        return []
    try:
        messages, _others, _roles = messages_of(value)
    except RowError:
        return []
    repeated = len(row.messages)
    if messages[:repeated] == row.messages:
        messages = messages[repeated:]
    return messages if any(message.role == "assistant" for message in messages) else []
