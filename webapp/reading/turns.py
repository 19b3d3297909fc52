"""A transcript in pages: no page holds more turns or text than a screen can show, however long the episode was.

A page begins at a turn's number and ends after ``PAGE_TURNS`` turns, or earlier once their texts are ``PAGE_CHARS``
long. Texts beyond ``TEXT_CHARS`` are cut, and say how much is missing; a page that begins at such a turn with
``whole`` shows it alone and uncut, up to ``CONTENT_MAX``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from django.db.models import Case, Count, F, Func, IntegerField, Max, Sum, Value, When
from django.utils.translation import gettext as _
from numpy.typing import NDArray

from training.token_file import LEARNED, SAMPLED, SEEN, TokenValues, read_rollout, spelled
from webapp.common.storage import attempt_dir
from webapp.common.text import finite
from webapp.reading.parts import config_for
from webapp.runs.answers import CONTENT_MAX
from webapp.runs.removal.models import Kept
from webapp.runs.removal.selectors import expiry_of, removed_sentence
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn

PAGE_TURNS = 40
PAGE_CHARS = 120_000
TEXT_CHARS = 20_000
TREE_CHARS = 20_000
MAX_CHARS = 2_000_000
LONG_LINES, LONG_CHARS = 14, 1_200
"""A text beyond one of these is folded: it scrolls in a box of its own until it is opened."""


class Message(NamedTuple):
    """One message as a page shows it. ``place`` is its number in the whole conversation, from 0; ``tree`` is its text
    read as JSON where that is an object or a list; ``raw`` is the message as it was recorded, as JSON; ``cut`` are the
    characters that are left out. ``reasoning`` and ``refusal`` are not part of the answer; ``finish`` is why it ended
    where that was not its own end."""

    place: int
    role: str
    name: str
    text: str
    cut: int
    tree: Any
    calls: list[dict[str, Any]]
    raw: str
    reasoning: str = ""
    refusal: str = ""
    finish: str = ""

    @property
    def long(self) -> bool:
        """Whether its text is folded."""
        return len(self.text) > LONG_CHARS or self.text.count("\n") >= LONG_LINES


class ShownTurn(NamedTuple):
    """One turn. ``ordinal`` counts the model's turns from 1; it is 0 for the prompt and for the environment. ``paid``
    is the environment's reward so far as it answered a turn of the model, ``advantage`` that of the turn alone."""

    number: int
    ordinal: int
    messages: list[Message]
    tokens: int
    seconds: float | None
    policy_step: int | None
    parse_error: str
    wrote: str
    paid: float | None = None
    advantage: float | None = None

    @property
    def cut(self) -> bool:
        """Whether something of it is left out."""
        return any(message.cut for message in self.messages)


class TurnPage(NamedTuple):
    """A part of a transcript. ``before`` and ``after`` are where the parts around it begin; ``last`` is the number of
    the transcript's last turn, ``None`` where there is none; ``removed`` says when and why a rule removed it."""

    turns: list[ShownTurn]
    first: int
    before: int | None
    after: int | None
    last: int | None
    removed: str = ""


def turn_page(rollout: Rollout, first: int = 0, *, whole: bool = False) -> TurnPage:
    """The turns from ``first`` on, as many as a page holds; with ``whole`` that one alone, and uncut."""
    rows = Turn.objects.filter(rollout=rollout)
    last = rows.aggregate(last=Max("number"))["last"]
    if last is None:
        return TurnPage([], 0, None, None, None, removed_words(rollout))
    first = max(0, min(first, last))
    size = 1 if whole else PAGE_TURNS
    found = list(rows.filter(number__gte=first).defer("words").order_by("number")[:size])
    messages, ordinal = _counts_before(rollout, first)
    shown: list[ShownTurn] = []
    chars = 0
    for turn in found:
        if shown and chars > PAGE_CHARS:
            break
        ordinal += (is_model := _is_model(turn))
        limit = CONTENT_MAX if whole else TEXT_CHARS
        made = [message_of(raw, messages + at, limit) for at, raw in enumerate(turn.messages)]
        messages += len(made)
        wrote = turn.wrote if len(turn.wrote) <= limit else f"{turn.wrote[:limit]} … (+{len(turn.wrote) - limit})"
        chars += sum(_message_size(message) for message in made) + len(wrote)
        number = ordinal if is_model else 0
        shown.append(
            ShownTurn(
                turn.number,
                number,
                made,
                turn.tokens,
                finite(turn.seconds),
                turn.policy_step,
                turn.parse_error[:TEXT_CHARS],
                wrote,
                _figure_at(rollout.turn_rewards, number) if number else None,
                _figure_at(rollout.turn_advantages, number - 1) if number else None,
            )
        )
    end = shown[-1].number if shown else last
    before = max(0, first - PAGE_TURNS) if first else None
    return TurnPage(shown, first, before, end + 1 if end < last else None, last)


def removed_words(rollout: Rollout, *kinds: Kept) -> str:
    """When and by which rule the transcript of a rollout, or one of these kinds, was removed; empty where none did."""
    found = expiry_of(rollout.run, *(kinds or (Kept.WORDS,)))
    return removed_sentence(found) if found is not None and rollout.seq <= found.seq else ""


def _figure_at(figures: list[float | None] | None, place: int) -> float | None:
    return finite(figures[place]) if figures and place < len(figures) else None


def _counts_before(rollout: Rollout, first: int) -> tuple[int, int]:
    """How many messages, and turns of the model, come before a turn."""
    if not first:
        return 0, 0
    length = Func(F("messages"), function="jsonb_array_length", output_field=IntegerField())
    model = Case(When(messages__0__role="assistant", then=Value(1)), output_field=IntegerField())
    found = Turn.objects.filter(rollout=rollout, number__lt=first).aggregate(said=Sum(length), by_model=Count(model))
    return found["said"] or 0, found["by_model"]


def _is_model(turn: Turn) -> bool:
    return bool(turn.messages) and turn.messages[0].get("role") == "assistant"


def message_of(raw: Mapping[str, Any], place: int, limit: int = TEXT_CHARS) -> Message:
    """A recorded message as a page shows it, with at most ``limit`` characters of its text."""
    content = raw.get("content")
    text = content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)
    calls = [_call_view(call, limit) for call in raw.get("tool_calls") or [] if isinstance(call, dict)]
    reasoning, refusal = (str(raw.get(name) or "") for name in ("reasoning", "refusal"))
    return Message(
        place=place,
        role=str(raw.get("role", "")),
        name=str(raw.get("name") or ""),
        text=text[:limit],
        cut=sum(max(0, len(part) - limit) for part in (text, reasoning, refusal)),
        tree=tree_of(text) if raw.get("role") == "tool" else None,
        calls=calls,
        raw=_exact_json(raw, limit),
        reasoning=reasoning[:limit],
        refusal=refusal[:limit],
        finish=str(raw.get("finish") or ""),
    )


def _exact_json(raw: Mapping[str, Any], limit: int) -> str:
    return json.dumps(raw, ensure_ascii=False, indent=2)[: 2 * limit]


def _call_view(call: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """A call whose arguments are a tree, or text where they are none or too long for one."""
    given = call.get("arguments")
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    read = tree_of(text) if isinstance(given, str) else given
    arguments = read if isinstance(read, dict | list) and len(text) <= TREE_CHARS else text[:limit]
    return dict(call) | {"name": str(call.get("name", "")), "arguments": arguments}


def tree_of(text: str) -> Any:
    """A text as the JSON object or list that it is; ``None`` for any other text."""
    if len(text) > TREE_CHARS or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) and found else None


def _message_size(message: Message) -> int:
    apart = len(message.reasoning) + len(message.refusal)
    return len(message.text) + apart + sum(len(str(call["arguments"])) for call in message.calls)


class TurnRows(NamedTuple):
    """Recorded turns in order, and the number of the next one, ``None`` at the end; ``removed`` as of a page."""

    turns: list[Turn]
    after: int | None
    removed: str = ""


def turn_rows(rollout: Rollout, first: int, limit: int) -> TurnRows:
    """Up to ``limit`` turns from ``first`` on, fewer where their texts together are longer than ``MAX_CHARS``."""
    found: list[Turn] = []
    chars = 0
    rows = Turn.objects.filter(rollout=rollout, number__gte=first).defer("words").order_by("number")
    for turn in rows[: limit + 1]:
        if len(found) == limit or (found and chars > MAX_CHARS):
            return TurnRows(found, turn.number)
        chars += sum(len(str(message.get("content") or "")) for message in turn.messages)
        found.append(turn)
    return TurnRows(found, None, "" if found or first else removed_words(rollout))


# --- Tokens ---------------------------------------------------------------------------------------------------------
# The tokens of a rollout with what its trainer knew of each (``training/token_file.py``).

DECIMALS = 3


def tokens_view(rollout: Rollout) -> dict[str, Any]:
    """The tokens as columns, or ``why`` there are none.

    ``prompt`` and ``ids`` are ids, ``spelling`` what each of them spells: a text, and whether it is one, for else it is
    bytes in hexadecimal digits. ``sampled`` and ``learned`` are 1 or 0. ``entropy`` and ``ratio`` are ``None`` where
    the trainer did not see the token. ``advantage`` is one figure, a column, or ``None``.
    """
    folder = attempt_dir(rollout.run_id, rollout.attempt)
    found = read_rollout(folder, rollout.step, rollout.group, rollout.index) if not rollout.held_out else None
    if found is None:
        return {"why": _missing_reason(rollout)}
    wanted = {*found.prompt.tolist(), *found.ids.tolist()}
    return {
        "why": "",
        **_column_lists(found),
        "spelling": {str(key): list(spellings) for key, spellings in spelled(folder, wanted).items()},
    }


def _column_lists(found: TokenValues) -> dict[str, Any]:
    seen = (found.flags & SEEN).astype(bool)
    advantage = found.advantage
    return {
        "prompt": found.prompt.tolist(),
        "ids": found.ids.tolist(),
        "sampled": (found.flags & SAMPLED).astype(bool).astype(int).tolist(),
        "learned": (found.flags & LEARNED).astype(bool).astype(int).tolist(),
        "logprob": _values_where(found.logprob, (found.flags & SAMPLED).astype(bool)),
        "entropy": _values_where(found.entropy, seen),
        "ratio": _values_where(found.ratio, seen),
        "advantage": _round_values(advantage) if isinstance(advantage, np.ndarray) else advantage,
    }


def _round_values(values: NDArray[np.float32]) -> list[float]:
    numbers: list[float] = np.round(values.astype(float), DECIMALS).tolist()
    return numbers


def _values_where(values: NDArray[np.float32], there: NDArray[np.bool_]) -> list[float | None]:
    return [value if known else None for value, known in zip(_round_values(values), there.tolist(), strict=True)]


def _missing_reason(rollout: Rollout) -> str:
    """A sentence on why a rollout has no values of tokens."""
    config = config_for(rollout)
    if rollout.run.imported_from:
        return _("The run was imported: its trainer's tokens were not recorded here.")
    if config is None or not config.method.trains or rollout.held_out:
        return _("Only rollouts that a run learns from have values of tokens.")
    if not config.run.keep_tokens_mib:
        return _("The run keeps no values of tokens: run.keep_tokens_mib is 0.")
    if rollout.status == RolloutStatus.RUNNING or rollout.step > rollout.run.step:
        return _("The values are written once the step is trained on.")
    if removed := removed_words(rollout, Kept.TOKENS, Kept.WORDS):
        return removed
    return _(
        "The values of this step are not kept: a run keeps those of its newest steps, up to %(size)d MiB "
        "(run.keep_tokens_mib), and of steps that were trained to their end."
    ) % {"size": config.run.keep_tokens_mib}
