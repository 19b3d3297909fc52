"""Demonstrations in tokens: which tokens of a conversation are learned, and rows as a model reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from envs.wire import Message
from training.data.learned import (
    IGNORED,
    LEFT_OUT,
    SAMPLED,
    Kind,
    Part,
    Reading,
    Rendered,
    RenderedRow,
    Token,
    lesson_of,
    pair_of,
)
from training.data.schema import Row
from training.dialects import DIALECTS
from training.errors import DataError, TemplateError
from training.rollout.tokens import ChatTemplate, Piece, Tools, pieces_of

# Demonstrations in tokens: which tokens of a conversation are learned, and what the chat template leaves out.
#
# A turn is what a rollout would sample: from where the prompt ends to the token that ends the turn
# (``training.rollout.tokens``).

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
    """The chat template's complaint about the first row that it refused."""

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
    """Remarks for the log on rows that are not learned, or not wholly. ``limit`` names the option of the length."""
    left_out: Counter[str] = sum((part.left_out for part in parts), Counter())  # a sum has no zeros
    found = [
        f"{count} rows are left out: {LEFT_OUT[why].format(limit=limit)}." for why, count in left_out.most_common()
    ]
    if unreasoned := sum(part.unreasoned for part in parts):
        found.append(f"The reasoning of {unreasoned} rows is not learned: the chat template leaves it out.")
    if refusal := next((part.refusal for part in parts if part.refusal), None):
        found.append(f"The chat template said of the first row that it refused: {refusal.message}")
    return found


def no_lesson(encoded: Encoded, *, limit: str) -> DataError:
    """The error where no row of a dataset is left. ``limit`` as in ``remarks_of``."""
    text = " ".join(["Nothing of the dataset can be learned.", *remarks_of(encoded, limit=limit)])
    return DataError(text, hint="Raise the limit, or check the dataset.")


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
    """The parts of learned turns that the template leaves out: ``reasoning``, ``calls``.

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


# Rows as a model reads them: the exact text and ids, what of it is learned, and what its dialect reads in each turn.
#
# Made of the very functions that SFT, DPO and rollouts use, over the first rows of a dataset, before anything is
# trained.


def render_rows(rows: Sequence[Row], tokenizer: Any, first: int, count: int, note: str = "") -> Rendered:
    """Render ``count`` rows from number ``first`` (from 1) on, and count over the first ``SAMPLED``."""
    template = ChatTemplate(tokenizer)
    found = Rendered(rows=[], sampled=min(len(rows), SAMPLED), dialect=template.family.dialect, note=note)
    left_out: Counter[str] = Counter()
    for number, row in enumerate(rows[: max(SAMPLED, first + count - 1)], 1):
        conversations = _conversations(row, number, template)
        if number <= SAMPLED:
            _count(found, left_out, conversations)
        if first <= number < first + count:
            found.rows += conversations
    found.left_out = dict(left_out)
    return found


def _count(found: Rendered, left_out: Counter[str], conversations: list[RenderedRow]) -> None:
    for each in conversations:
        found.tokens += sum(len(part.tokens) for part in each.parts)
        found.learned += sum(len(part.tokens) for part in each.parts if part.kind == "learned")
        found.unread += any(part.reading is not None and not part.reading.same for part in each.parts)
        found.unreasoned += "reasoning" in each.dropped and not each.why
    if why := next((each.why for each in conversations if each.why), ""):
        left_out[why] += 1


def _conversations(row: Row, number: int, template: ChatTemplate) -> list[RenderedRow]:
    pair = pair_of(row)
    if pair is None:
        turns, why = lesson_of(row)
        return [_conversation(row, number, row.messages, turns, template, why or "")]
    made = []
    for title, answer, turns in (("chosen", pair.chosen, pair.turns[0]), ("rejected", pair.rejected, pair.turns[1])):
        learned = [False] * len(pair.prompt) + turns
        shown = _conversation(row, number, [*pair.prompt, *answer], learned, template, "")
        made.append(shown.model_copy(update={"title": title}))
    return made


def _conversation(
    row: Row, number: int, messages: list[Message], turns: Sequence[bool], template: ChatTemplate, why: str
) -> RenderedRow:
    shown = RenderedRow(row=number, parts=[], why=why)
    try:
        shown.dropped = sorted(unwritten_in(messages, turns, row.tools, template))
        pieces = pieces_of(template, messages, row.tools)
        pieces = pieces or [Piece(template.text_of(messages, row.tools, generate=True))]
    except TemplateError as error:
        shown.why = str(error).rstrip(".")
        return shown
    if "calls" in shown.dropped:
        shown.why = shown.why or "calls"
    shown.parts = [_part(piece, messages, turns, row, template, bool(shown.why)) for piece in pieces]
    return shown


def _part(
    piece: Piece, messages: list[Message], turns: Sequence[bool], row: Row, template: ChatTemplate, out: bool
) -> Part:
    kind: Kind = "context"
    if piece.turn is not None:
        kind = "learned" if turns[piece.turn] and not out else "unlearned"
    ids = template.encode(piece.text)
    reading = _reading(ids, messages[piece.turn], row, template) if piece.turn is not None else None
    return Part(kind=kind, tokens=spelled(ids, template.tokenizer), reading=reading)


def _reading(ids: list[int], message: Message, row: Row, template: ChatTemplate) -> Reading:
    parse = DIALECTS[template.family.dialect or "text"]
    turn = parse(template.decode(ids), "call_", row.tools, in_thought=template.family.in_thought)
    calls = [{"name": call.name, "arguments": call.arguments} for call in turn.tool_calls]
    wanted = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls or []]
    return Reading(
        text=turn.text,
        calls=calls,
        reasoning=turn.reasoning or "",
        error=turn.parse_error or "",
        same=turn.parse_error is None and calls == wanted and turn.text.strip() == message.content.strip(),
    )


def spelled(ids: Sequence[int], tokenizer: Any) -> list[Token]:
    """Each id with what it adds to the text: a character of several ids comes with the last of them."""
    found: list[Token] = []
    waiting: list[int] = []
    for token in ids:
        waiting.append(token)
        text = str(tokenizer.decode(waiting, skip_special_tokens=False, clean_up_tokenization_spaces=False))
        whole = not text.endswith("�") or len(waiting) > 8
        found.append(Token(id=token, text=text if whole else ""))
        if whole:
            waiting = []
    return found


def load(model: str, rows: Sequence[Row]) -> tuple[Any, str]:
    """The tokenizer of a model's folder, or of the starter that would be built for these rows, and its remark."""
    from training.algorithms.loading import STARTER, load_tokenizer
    from training.starter import build_tokenizer

    if model == STARTER:
        return build_tokenizer(rows), ""
    tokenizer, note = load_tokenizer(Path(model))
    return tokenizer, note or ""
