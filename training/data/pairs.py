"""Preference pairs: what a row asks, and the two answers of which one is the better.

A row of the format ``preference`` keeps ``chosen`` and ``rejected`` as they stood: texts, or lists of messages, alone
or with the beginning that both have in common.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from training.data.learned import ROW_WEIGHTS, is_off, learned_turns
from training.data.messages import messages_of, plain
from training.data.native import read_native
from training.data.nulls import clean_calls
from training.data.problems import RowError
from training.data.schema import Message, Row, make_row, others_of

CHOSEN, REJECTED = "chosen", "rejected"
_TURN = "\n\nAssistant:"


class Pair(NamedTuple):
    """The conversation up to where the two answers begin, the messages of each, and whether each message is learned."""

    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]
    turns: tuple[list[bool], list[bool]]


def pair_of(row: Row) -> Pair | None:
    """The row's pair; ``None`` where it has none, its answers cannot be told from each other, or nothing of one of them
    is learned."""
    if is_off(row.extra, ROW_WEIGHTS):
        return None
    (chosen, good), (rejected, bad) = (_answer(row, row.extra.get(name)) for name in (CHOSEN, REJECTED))
    if not any(good) or not any(bad) or chosen == rejected:
        return None
    return Pair(row.messages, chosen, rejected, (good, bad))


def _answer(row: Row, value: Any) -> tuple[list[Message], list[bool]]:
    """The messages of an answer without what it repeats of the prompt, and whether each of them is learned."""
    if isinstance(value, str):
        text = value.rpartition(_TURN)[2].strip() if "prompt" not in row.extra and _TURN in value else value
        return ([plain("assistant", text)], [True]) if text else ([], [])
    if not isinstance(value, list):
        return [], []
    try:
        messages, others, _roles = messages_of(value)
    except RowError:
        return [], []
    clean_calls(messages, row.tools, value)
    answer = read_native(make_row(messages, {}, others=others))
    messages, others = answer.messages, list(others_of(answer))
    repeated = len(row.messages)
    if messages[:repeated] == row.messages:
        messages, others = messages[repeated:], others[repeated:]
    return messages, learned_turns(messages, others)
