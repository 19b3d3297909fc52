"""What of a row is learned as a demonstration: one rule for every trainer that imitates, and for the check's report.

An assistant's turn is learned unless its data say that it is not: `weight` 0, `loss` false and the other spellings of
``WEIGHTS``, for a turn or for the whole row; a row that ``LABELS`` mark as bad is no demonstration at all. A weight is
a switch: above 0 a turn counts in full, whatever the weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from training.data.schema import Message, Row, others_of

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
LABELS = ("label", "kto_tag")
"""Fields of a row that hold false where its answer is a bad example (KTO)."""
WORSE = ("rejected_response", "rejected_messages")
"""Where ms-swift writes the worse of two answers, beside a conversation that ends with the better one."""
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
    """What of a row is learned."""
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
        yield from _facts_beside(row)
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


def _facts_beside(row: Row) -> Iterator[str]:
    """What columns beside a conversation mean for learning it."""
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
