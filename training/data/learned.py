"""The learned parts of a row: turns of a demonstration, answers of a pair, and tokens as a model reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from training.data.messages import messages_of, plain
from training.data.native import read_native
from training.data.nulls import clean_calls
from training.data.problems import RowError
from training.data.schema import Message, Row, make_row, others_of

# What of a row is learned as a demonstration: one rule for every trainer that imitates, and for the check's report.
#
# An assistant's turn is learned unless its data say that it is not: `weight` 0, `loss` false and the other spellings of
# ``WEIGHTS``, for a turn or for the whole row; a row that ``LABELS`` mark as bad is no demonstration at all. A weight
# is a switch: above 0 a turn counts in full, whatever the weight.

WEIGHTS = (
    "weight",  # OpenAI, Fireworks
    "loss",  # ms-swift, AgentGym
    "loss_weight",  # LLaMA-Factory
    "loss_scale",  # ms-swift
    "trainable",  # rllm
    "train",  # axolotl
    "training",  # axolotl
    "loss_mask",  # verl
    "step_loss_mask",  # slime
)
"""Fields of a message that say whether it is learned: true or false, or a weight."""
ROW_WEIGHTS = ("weight", "loss_weight", "trainable", "train")
"""Those of them that say it for a whole row; a row may have a measured `loss` or a `loss_mask` of its tokens."""
IGNORED = -100
"""The label of a token that nothing is learned from, as PyTorch's losses expect it."""
LABELS = ("label", "kto_tag")
"""Fields of a row that hold false where its answer is a bad example (KTO)."""
WORSE = ("rejected_response", "rejected_messages")
"""Where ms-swift writes the worse of two answers, next to a conversation that ends with the better one."""
MEDIA = ("images", "image", "videos", "audios")
"""Columns with pictures, sound and video that the texts of a row refer to."""
NOT_LEARNED: dict[str, str] = {
    "bad": "marked as bad examples",
    "unweighted": "marked as not learned",
    "mute": "without an assistant turn",
    "unlearned": "with assistant turns that are all marked as not learned",
}
"""Why nothing of a row is learned: code → words."""
LEFT_OUT = NOT_LEARNED | {
    "calls": "the chat template leaves out their tool calls, so the model would learn to say nothing there",
    "refused": "the chat template refuses them",
    "first": "their only turn answers nothing, and the chat template cannot begin with it",
    "unpaired": "without two different answers of an assistant that are learned",
    "too_long": "longer than {limit}",
}
"""Why a row is left out of training: code → words."""


class Lesson(NamedTuple):
    """Whether each message of a row is learned, and else why none is: a code of ``NOT_LEARNED``."""

    turns: list[bool]
    why_not: str = ""


def lesson_of(row: Row) -> Lesson:
    """The parts of a row that are learned."""
    nothing = [False] * len(row.messages)
    if any(row.extra.get(name) is False for name in LABELS):
        return Lesson(nothing, "bad")
    if is_off(row.extra, ROW_WEIGHTS):
        return Lesson(nothing, "unweighted")
    if all(message.role != "assistant" for message in row.messages):
        return Lesson(nothing, "mute")
    turns = learned_turns(row.messages, others_of(row))
    return Lesson(turns, "" if any(turns) else "unlearned")


def learned_turns(messages: Sequence[Message], others: Sequence[dict[str, Any]]) -> list[bool]:
    """Whether each message is learned, from its fields that are not ours (``others``)."""
    return [message.role == "assistant" and not is_off(other) for message, other in zip(messages, others, strict=True)]


def is_off(fields: dict[str, Any], names: tuple[str, ...] = WEIGHTS) -> bool:
    """Whether one of a message's or a row's fields says that it is not learned."""
    if not fields:
        return False
    weights = (_weight(fields.get(name)) for name in names)
    return any(weight is not None and weight <= 0 for weight in weights)


def _weight(value: Any) -> float | None:
    """A weight as a number, true as 1; ``None`` where there is none."""
    if isinstance(value, str):
        text = value.strip().casefold()
        if text in ("true", "false"):
            return float(text == "true")
        try:
            return float(text)
        except ValueError:
            return None
    return float(value) if isinstance(value, bool | int | float) else None


def facts_of(row: Row) -> Iterator[str]:
    """What a check says of a row that is learned from: codes of ``facts.FACTS``."""
    if not row.as_written and any(message.reasoning for message in row.messages):
        yield "reasoning"
    if not row.extra.keys().isdisjoint(_BESIDE):
        yield from _facts_of_columns(row)
    if not row.others and row.extra.keys().isdisjoint(_SWITCHES):
        return
    lesson = lesson_of(row)
    if lesson.why_not in ("bad", "unweighted", "unlearned"):
        yield lesson.why_not
    elif any(message.role == "assistant" and not on for message, on in zip(row.messages, lesson.turns, strict=True)):
        yield "turns_off"
    given = list(zip(row.messages, others_of(row), strict=True))
    if any(_is_fraction(other, WEIGHTS) for _message, other in given) or _is_fraction(row.extra, ROW_WEIGHTS):
        yield "fractions"
    if any(message.role != "assistant" and _is_on(other) for message, other in given):
        yield "others_on"
    if any("mask" in other for _message, other in given):
        yield "mask"


def _facts_of_columns(row: Row) -> Iterator[str]:
    """What columns next to a conversation mean for learning it."""
    if any(row.extra.get(name) for name in MEDIA):
        yield "media"
    if all(message.role != "assistant" for message in row.messages):
        return
    reward = row.extra.get("reward")
    if isinstance(reward, int | float) and "label" not in row.extra:
        yield "rewarded"
    if any(row.extra.get(name) for name in WORSE) and row.messages[-1].role == "assistant":
        yield "worse"


_SWITCHES = {*ROW_WEIGHTS, *LABELS}
_BESIDE = {*WORSE, *MEDIA, "reward"}


def _is_fraction(fields: dict[str, Any], names: tuple[str, ...]) -> bool:
    weights = (_weight(fields.get(name)) for name in names if name in fields)
    return any(weight is not None and weight > 0 and weight != 1 for weight in weights)


def _is_on(fields: dict[str, Any]) -> bool:
    weights = (_weight(fields.get(name)) for name in WEIGHTS if name in fields)
    return any(weight is not None and weight > 0 for weight in weights)


# Preference pairs: what a row asks, and the two answers of which one is the better.
#
# A row of the format ``preference`` keeps ``chosen`` and ``rejected`` as in the file: texts, or lists of messages,
# alone or with the beginning that both have in common.

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
    """The row's pair; ``None`` where it has none, its answers cannot be distinguished, or nothing of one of them
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


# What is said of rows as a model reads them; ``training.algorithms.lessons`` makes it, pages show it.

Kind = Literal["context", "learned", "unlearned"]
SAMPLED = 200
"""Rows that are counted at most; fewer are shown."""


class Token(BaseModel):
    """One id, and what it adds to the text."""

    id: int
    text: str


class Reading(BaseModel):
    """What the dialect reads in a turn of the assistant; ``error`` says why a call cannot be read."""

    text: str
    calls: list[dict[str, Any]]
    reasoning: str = ""
    error: str = ""
    same: bool = True
    """Whether that is what the row says."""

    @property
    def lines(self) -> list[str]:
        """Each call as one line."""
        return [f"{call['name']} {json.dumps(call['arguments'], ensure_ascii=False)}" for call in self.calls]


class Part(BaseModel):
    """A stretch of a conversation, and for a turn of the assistant what is read in it."""

    kind: Kind
    tokens: list[Token]
    reading: Reading | None = None


class RenderedRow(BaseModel):
    """One conversation of a row; ``why`` nothing of it is learned is empty where something is.

    ``dropped`` names what of the row the template leaves out.
    """

    row: int
    title: Literal["conversation", "chosen", "rejected"] = "conversation"
    parts: list[Part]
    why: str = ""
    dropped: list[str] = []


class Rendered(BaseModel):
    """The first rows, and counts over up to ``SAMPLED`` of them. ``left_out`` counts rows by reason."""

    rows: list[RenderedRow]
    sampled: int
    tokens: int = 0
    learned: int = 0
    left_out: dict[str, int] = {}
    unreasoned: int = 0
    unread: int = 0
    dialect: str = ""
    note: str = ""


def why_words(code: str, limit: str) -> str:
    """A reason of ``left_out`` in words; a sentence of an error is its own."""
    return LEFT_OUT[code].format(limit=limit) if code in LEFT_OUT else code
