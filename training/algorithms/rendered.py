"""Rows as a model reads them: the exact text and ids, what of it is learned, and what its dialect reads in each turn.

Made of the very functions that SFT, DPO and rollouts use, over the first rows of a dataset, before anything is trained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs.wire import Message
from training.algorithms.lessons import unwritten_in
from training.data.learned import SAMPLED, Kind, Part, Reading, Rendered, RenderedRow, Token, lesson_of, pair_of
from training.data.schema import Row
from training.dialects import DIALECTS
from training.errors import TemplateError
from training.rollout.tokens import ChatTemplate
from training.rollout.turns import Piece, pieces_of


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
    """Each id with what it adds to the text: a character of several ids stands at the last of them."""
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
