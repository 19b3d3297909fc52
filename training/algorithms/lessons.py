"""Demonstrations in tokens: which tokens of a conversation are learned, and what the chat template leaves out.

A turn is what a rollout would sample: from where the prompt ends to the token that ends the turn
(``training.rollout.turns``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from training.algorithms.base import IGNORED
from training.data.learned import LEFT_OUT, lesson_of
from training.data.schema import Message, Row
from training.errors import DataError, TemplateError
from training.rollout.tokens import ChatTemplate, Tools
from training.rollout.turns import pieces_of

Example = dict[str, list[int]]


class NotLearned(Exception):
    """Why a row is left out: a code of ``LEFT_OUT``."""


@dataclass
class Encoded:
    """Rows in ids, and how many were left out by reason, a code of ``LEFT_OUT``; ``unreasoned`` counts rows that are
    learned without their reasoning."""

    examples: list[Example] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    unreasoned: int = 0
    refusal: TemplateError | None = None
    """What the chat template said of the first row that it refused."""

    def add(self, example: Example, reasoned: bool) -> None:
        """Take a row; ``reasoned`` says whether all of its reasoning is in the example."""
        self.examples.append(example)
        self.unreasoned += not reasoned

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Counts the row where ``NotLearned`` says why it is left out, or the template refuses it."""
        try:
            yield
        except NotLearned as exc:
            self.left_out[str(exc)] += 1
        except TemplateError as exc:
            self.left_out["refused"] += 1
            self.refusal = self.refusal or exc


class Learned(NamedTuple):
    """The ids of a conversation, 1 for each that is learned, and whether the reasoning of those turns is among them."""

    ids: list[int]
    marks: list[int]
    reasoned: bool


def encode_rows(rows: Sequence[Row], tokenizer: Any, limit: int) -> Encoded:
    """Demonstrations as ``{"input_ids", "labels"}`` of at most ``limit`` tokens; labels are ``IGNORED`` on every token
    that is not learned.

    Raises ``TemplateError`` where the template refuses the only rows that were left, ``DataError`` when no row is left.
    """
    template = ChatTemplate(tokenizer)
    encoded = Encoded()
    for row in rows:
        with encoded.counting():
            turns, why_not = lesson_of(row)
            if why_not:
                raise NotLearned(why_not)
            learned = learned_tokens(row.messages, turns, row.tools, template)
            encoded.add(_example(learned, limit), learned.reasoned)
    if not encoded.examples:
        raise encoded.refusal or no_lesson(encoded, limit="sft.max_length")
    return encoded


def remarks_of(*parts: Encoded, limit: str) -> list[str]:
    """What a run's log says of rows that are not learned, or not wholly. ``limit`` names the option of the length."""
    left_out: Counter[str] = sum((part.left_out for part in parts), Counter())  # a sum has no zeros
    said = [f"{count} rows are left out: {LEFT_OUT[why].format(limit=limit)}." for why, count in left_out.most_common()]
    if unreasoned := sum(part.unreasoned for part in parts):
        said.append(f"The reasoning of {unreasoned} rows is not learned: the chat template leaves it out.")
    if refusal := next((part.refusal for part in parts if part.refusal), None):
        said.append(f"The chat template said of the first row that it refused: {refusal.message}")
    return said


def no_lesson(encoded: Encoded, *, limit: str) -> DataError:
    """The error where no row of a dataset is left. ``limit`` as in ``remarks_of``."""
    said = " ".join(["Nothing of the dataset can be learned.", *remarks_of(encoded, limit=limit)])
    return DataError(said, hint="Raise the limit, or check the dataset.")


def _example(learned: Learned, limit: int) -> Example:
    ids, marks, _reasoned = learned
    if not any(marks):
        raise NotLearned("mute")
    end = len(marks) - marks[::-1].index(1)  # what follows the last token that is learned teaches nothing
    ids, marks = ids[:end], marks[:end]
    if len(ids) > limit:
        raise NotLearned("too_long")
    return {"input_ids": ids, "labels": [i if mark else IGNORED for i, mark in zip(ids, marks, strict=True)]}


def learned_tokens(
    messages: list[Message], turns: Sequence[bool], tools: Tools | None, template: ChatTemplate
) -> Learned:
    """A conversation in ids, of which the assistant's messages whose ``turns`` are true are learned.

    Raises ``TemplateError``, and ``NotLearned`` where the template leaves out calls or can write no turn.
    """
    unwritten = unwritten_in(messages, turns, tools, template)
    if "calls" in unwritten:
        raise NotLearned("calls")
    ids: list[int] = []
    marks: list[int] = []
    for piece in pieces_of(template, messages, tools):
        tokens = template.encode(piece.text)
        ids += tokens
        marks += [int(piece.turn is not None and turns[piece.turn])] * len(tokens)
    if any(turns) and not any(marks):
        raise NotLearned("first")
    return Learned(ids, marks, "reasoning" not in unwritten)


def unwritten_in(
    messages: list[Message], turns: Sequence[bool], tools: Tools | None, template: ChatTemplate
) -> set[str]:
    """What the template leaves out of turns that are learned: ``reasoning``, ``calls``.

    Found by rendering the conversation with words in their place that are nowhere else.
    """
    probes: list[tuple[str, str]] = []
    thinking: list[Message] = []
    probed: list[Message] = []
    for place, (message, learned) in enumerate(zip(messages, turns, strict=True)):
        if learned and message.reasoning:
            probes.append(("reasoning", f"reasoning-of-{place}."))
            message = message.model_copy(update={"reasoning": probes[-1][1]})
        thinking.append(message)
        if learned and message.tool_calls:
            names = [f"call-{number}-of-{place}." for number in range(len(message.tool_calls))]
            called = zip(message.tool_calls, names, strict=True)
            calls = [call.model_copy(update={"name": name}) for call, name in called]
            message = message.model_copy(update={"tool_calls": calls})
            probes += [("calls", name) for name in names]
        probed.append(message)
    if not probes:
        return set()
    text = template.text_of(probed, tools)
    missing = {what for what, probe in probes if probe not in text}
    if "reasoning" in missing:  # many write a thought while its turn is the last, and it is learned as that
        text += "".join(piece.text for piece in pieces_of(template, thinking, tools))
    return {what for what, probe in probes if probe not in text}
