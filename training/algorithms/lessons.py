"""Demonstrations in tokens: which tokens of a conversation are learned, and what the chat template leaves out.

A template marks everything that the assistant wrote with ``{% generation %}``; for families whose template has no marks
TRL's training template is used. Where a turn is not to be learned, its marks are taken away: each run of marks is a
turn, where there are as many runs as turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from training.algorithms.base import IGNORED
from training.data.learned import NOT_LEARNED, lesson_of
from training.data.schema import Message, Row
from training.errors import DataError, TemplateError
from training.rollout.tokens import Tools, messages_to_template

Example = dict[str, list[int]]
LEFT_OUT = NOT_LEARNED | {
    "calls": "the chat template leaves out their tool calls, so the model would learn to say nothing there",
    "apart": "some of their turns are not learned, and the chat template does not mark each turn by itself",
    "unpaired": "without two different answers of an assistant that are learned",
    "too_long": "longer than {limit}",
}
"""Why a row is left out: code → words."""


class NotLearned(Exception):
    """Why a row is left out: a code of ``LEFT_OUT``."""


@dataclass
class Encoded:
    """Rows in ids, and how many were left out by reason, a code of ``LEFT_OUT``; ``unreasoned`` counts rows that are
    learned without their reasoning."""

    examples: list[Example] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    unreasoned: int = 0

    def add(self, example: Example, reasoned: bool) -> None:
        """Take a row; ``reasoned`` says whether all of its reasoning is in the example."""
        self.examples.append(example)
        self.unreasoned += not reasoned

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Counts the row where ``NotLearned`` says why it is left out."""
        try:
            yield
        except NotLearned as exc:
            self.left_out[str(exc)] += 1


class Learned(NamedTuple):
    """The ids of a conversation, 1 for each that is learned, and whether the reasoning of those turns is among them."""

    ids: list[int]
    marks: list[int]
    reasoned: bool


def encode_rows(rows: Sequence[Row], tokenizer: Any, limit: int) -> Encoded:
    """Demonstrations as ``{"input_ids", "labels"}`` of at most ``limit`` tokens; labels are ``IGNORED`` on every token
    that is not learned.

    Raises ``TemplateError`` when the template cannot mark the assistant's tokens, ``DataError`` when no row is left.
    """
    template = marking_template(tokenizer)
    encoded = Encoded()
    for row in rows:
        with encoded.counting():
            turns, why_not = lesson_of(row)
            if why_not:
                raise NotLearned(why_not)
            learned = learned_tokens(row.messages, turns, row.tools, tokenizer, template)
            encoded.add(_example(learned, limit), learned.reasoned)
    if not encoded.examples:
        raise no_lesson(encoded, limit="sft.max_length")
    return encoded


def remarks_of(*parts: Encoded, limit: str) -> list[str]:
    """What a run's log says of rows that are not learned, or not wholly. ``limit`` names the option of the length."""
    left_out: Counter[str] = sum((part.left_out for part in parts), Counter())  # a sum has no zeros
    said = [f"{count} rows are left out: {LEFT_OUT[why].format(limit=limit)}." for why, count in left_out.most_common()]
    if unreasoned := sum(part.unreasoned for part in parts):
        said.append(f"The reasoning of {unreasoned} rows is not learned: the chat template leaves it out.")
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
    messages: list[Message], turns: Sequence[bool], tools: Tools | None, tokenizer: Any, template: str
) -> Learned:
    """A conversation in ids, of which the assistant's messages whose ``turns`` are true are learned.

    Raises ``TemplateError``, and ``NotLearned`` where the template leaves out calls or lets no turn be told apart.
    """
    unwritten = _left_out(messages, turns, tools, tokenizer, template)
    if "calls" in unwritten:
        raise NotLearned("calls")
    ids, marks = marked_tokens(messages, tools, tokenizer, template)
    learned = [turn for turn, message in zip(turns, messages, strict=True) if message.role == "assistant"]
    if not all(learned):
        spans = _spans(marks)
        if len(spans) != len(learned):
            raise NotLearned("apart")
        for span, turn in zip(spans, learned, strict=True):
            for place in span if not turn else ():
                marks[place] = 0
    return Learned(ids, marks, "reasoning" not in unwritten)


def _spans(marks: Sequence[int]) -> list[range]:
    """Where the marks are: the places of each run of ones."""
    spans: list[range] = []
    for place, mark in enumerate(marks):
        if mark and spans and spans[-1].stop == place:
            spans[-1] = range(spans[-1].start, place + 1)
        elif mark:
            spans.append(range(place, place + 1))
    return spans


def _left_out(
    messages: list[Message], turns: Sequence[bool], tools: Tools | None, tokenizer: Any, template: str
) -> set[str]:
    """What the template leaves out of turns that are learned: ``reasoning``, ``calls``.

    Found by rendering the conversation with words in their place that are nowhere else.
    """
    probes: list[tuple[str, str]] = []
    probed: list[Message] = []
    for place, (message, learned) in enumerate(zip(messages, turns, strict=True)):
        changes: dict[str, Any] = {}
        if learned and message.reasoning:
            changes["reasoning"] = f"reasoning-of-{place}."
            probes.append(("reasoning", changes["reasoning"]))
        if learned and message.tool_calls:
            names = [f"call-{number}-of-{place}." for number in range(len(message.tool_calls))]
            called = zip(message.tool_calls, names, strict=True)
            changes["tool_calls"] = [call.model_copy(update={"name": name}) for call, name in called]
            probes += [("calls", name) for name in names]
        probed.append(message.model_copy(update=changes) if changes else message)
    if not probes:
        return set()
    text = render(probed, tools, tokenizer, template, tokenize=False)
    return {what for what, probe in probes if probe not in text}


def marking_template(tokenizer: Any) -> str:
    """A chat template with generation marks: the tokenizer's own or TRL's variant. Raises ``TemplateError``."""
    own = tokenizer.chat_template or ""
    if "{% generation" in own or "{%- generation" in own:
        return str(own)
    from trl.chat_template_utils import get_training_chat_template

    try:
        variant = get_training_chat_template(tokenizer)
    except ValueError as exc:
        raise TemplateError(
            "The chat template cannot mark the assistant's tokens, and TRL has no variant of it that can.",
            hint="Choose a model of a family that TRL supports, such as Qwen2.5, Qwen3 or Llama 3.",
        ) from exc
    return str(variant or own)


def prompt_tokens(messages: list[Message], tools: Tools | None, tokenizer: Any, template: str) -> list[int]:
    """The ids of a conversation up to where the model's next turn begins. Raises ``TemplateError``."""
    found: list[int] = render(messages, tools, tokenizer, template, add_generation_prompt=True)["input_ids"]
    return found


def marked_tokens(
    messages: list[Message], tools: Tools | None, tokenizer: Any, template: str
) -> tuple[list[int], list[int]]:
    """The ids of a conversation, and 1 for each that the assistant wrote. Raises ``TemplateError``."""
    encoded = render(messages, tools, tokenizer, template, return_assistant_tokens_mask=True)
    return encoded["input_ids"], encoded["assistant_masks"]


def render(messages: list[Message], tools: Tools | None, tokenizer: Any, template: str, **options: Any) -> Any:
    """What the template makes of a conversation: ids, or text without ``tokenize``. Raises ``TemplateError``."""
    special = tuple(text for text in tokenizer.all_special_tokens if len(text) > 1)
    try:
        return tokenizer.apply_chat_template(
            messages_to_template(messages, special),
            tools=tools or None,
            chat_template=template,
            **{"tokenize": True, "return_dict": True, **options},
        )
    except Exception as exc:  # a template is a program that others wrote: it may raise anything
        raise TemplateError(f"The chat template failed on a row: {type(exc).__name__}: {str(exc)[:200]}") from exc
