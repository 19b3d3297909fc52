"""Preference pairs: what a row asks, and the two answers of which one is the better.

A row of the format ``preference`` keeps ``chosen`` and ``rejected`` as they stood: texts, or lists of messages, alone
or with the beginning that both have in common.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from training.data.learned import ROW_WEIGHTS, WORSE, is_off, learned_turns
from training.data.messages import messages_of, plain
from training.data.native import read_native
from training.data.nulls import clean_calls
from training.data.problems import RowError
from training.data.schema import Message, Row, make_row, others_of

CHOSEN, REJECTED = "chosen", "rejected"
KEYS = ((CHOSEN, REJECTED), ("chosen_messages", "rejected_messages"), ("preferred_output", "non_preferred_output"))
"""The columns of the better and the worse answer, with TRL, LLaMA-Factory and OpenAI."""
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
    better, worse = pair_keys(row.extra)
    row, first = _asked(row)
    value = next((row.extra[name] for name in (worse, *WORSE) if name in row.extra), None)
    (chosen, good), (rejected, bad) = first or _answer(row, row.extra.get(better)), _answer(row, value)
    if not any(good) or not any(bad) or chosen == rejected:
        return None
    return Pair(row.messages, chosen, rejected, (good, bad))


def pair_keys(value: dict[str, Any]) -> tuple[str, str]:
    """The columns of a row that hold the better and the worse answer; TRL's where none does."""
    return next((keys for keys in KEYS if keys[0] in value), KEYS[0])


def _asked(row: Row) -> tuple[Row, tuple[list[Message], list[bool]] | None]:
    """What a row asks, and its chosen answer where that ends the conversation, as in ms-swift's rows."""
    end = len(row.messages)
    while end and row.messages[end - 1].role == "assistant":
        end -= 1
    if pair_keys(row.extra)[0] in row.extra or not end or end == len(row.messages):
        return row, None
    answer = row.messages[end:]
    turns = learned_turns(answer, others_of(row)[end:])
    return row.model_copy(update={"messages": row.messages[:end]}), (answer, turns)


def _answer(row: Row, value: Any) -> tuple[list[Message], list[bool]]:
    """The messages of an answer without what it repeats of the prompt, and whether each of them is learned."""
    if isinstance(value, str):
        text = value.rpartition(_TURN)[2].strip() if "prompt" not in row.extra and _TURN in value else value
        return ([plain("assistant", text)], [True]) if text else ([], [])
    value = [value] if isinstance(value, dict) else value
    if not isinstance(value, list):
        return [], []
    try:
        messages, others, _roles = messages_of(value)
    except RowError:
        return [], []
    clean_calls(messages, row.tools, value)
    answer = read_native(make_row(messages, {"tools": row.tools} if row.tools else {}, others=others))
    messages, others = answer.messages, list(others_of(answer))
    repeated = len(row.messages)
    if messages[:repeated] == row.messages:
        messages, others = messages[repeated:], others[repeated:]
    return messages, learned_turns(messages, others)
