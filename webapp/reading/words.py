"""The words that earned a reward: where in a recorded transcript each component's value comes from.

Nothing is scored again: values are the recorded ones. Components report, for the episode rebuilt from its records,
which pieces of text they read; all of them together have ``WORDS_LIMIT_S``. Where one cannot, ``reason`` says why.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db.models import F, Func, IntegerField, Sum
from django.utils.translation import gettext as _

from training.config import RewardComponent
from training.rewards.base import Episode, Span
from training.rewards.lab import asks_others
from training.rewards.registry import COMPONENTS
from training.rewards.scorer.wire import Asked, Said
from training.words import Sentence
from webapp.common.text import in_words, translated
from webapp.people.teams.models import User
from webapp.reading.parts import Part, config_for, parts_of, spec_of
from webapp.reading.rows import task_row
from webapp.rewards.scorers.asking import scorers
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn
from webapp.runs.rollouts.selectors import episode_of

WORDS_LIMIT_S = 3.0
MAX_TURNS = 4_000
MAX_BYTES = 4 << 20
MAX_SPANS = 200


class PartWords(NamedTuple):
    """A part of the reward, the pieces of text that it comes from, and why there are none. ``turns`` has the number of
    each message's turn."""

    part: Part
    spans: list[Span]
    reason: str
    turns: list[int]


def words_of(rollout: Rollout, user: User) -> list[PartWords]:
    """Each recorded part with its words, in the spec's order. Raises ``TooMany``."""
    config = config_for(rollout)
    components = spec_of(rollout, config)
    parts = parts_of(rollout, components)
    refusal = _refusal_reason(rollout)
    if refusal or not parts:
        return [PartWords(part, [], refusal, []) for part in parts]
    turns = list(Turn.objects.filter(rollout=rollout).defer("words").order_by("number"))
    found = task_row(rollout, config, components)
    episode = episode_of(rollout, turns, found.row if found else {})
    chosen = {item.name: item for item in components}
    places = [turn.number for turn in turns for _message in turn.messages]
    return _ask_components(parts, chosen, episode, places, user)


def _refusal_reason(rollout: Rollout) -> str:
    """Why no component is asked; empty where they are."""
    if rollout.status == RolloutStatus.RUNNING:
        return _("It is still in flight.")
    size = Func(F("messages"), function="pg_column_size", output_field=IntegerField())
    found = Turn.objects.filter(rollout=rollout).aggregate(bytes=Sum(size))["bytes"]
    if found is None:
        return _("Its transcript is not stored (any more).")
    if rollout.turns > MAX_TURNS or found > MAX_BYTES:
        return _("The transcript is too long to look for the words in it.")
    return ""


def _ask_components(
    parts: list[Part], chosen: dict[str, RewardComponent], episode: Episode, places: list[int], user: User
) -> list[PartWords]:
    reasons = {part.name: _skip_reason(chosen.get(part.name)) for part in parts}
    components = [chosen[name] for name, reason in reasons.items() if not reason]
    said: dict[str, Said] = {}
    if components:
        asked = Asked(episode=episode, components=components, values=False, spans=MAX_SPANS)
        late = _("Looking for the words took longer than %(s)g seconds.") % {"s": WORDS_LIMIT_S}
        (said,) = scorers.ask(user.pk, [asked], WORDS_LIMIT_S, late=late)
    found = [(part, said.get(part.name) or Said(why=Sentence.of(reasons[part.name]))) for part in parts]
    return [PartWords(part, answer.spans, in_words(answer.why), places) for part, answer in found]


def _skip_reason(item: RewardComponent | None) -> str:
    """Why a component is not asked; empty where it is."""
    if item is None:
        return _("The run's config does not have this component.")
    known = COMPONENTS.get(item.registered)
    if known is None:
        return _("This component is not known here (any more).")
    if known.spans is None:
        if asks_others(item):
            return _("A judge or a model gave this value; it is not asked again.")
        return _("This component does not report which words it looks at.")
    return ""


def words_view(found: list[PartWords]) -> dict[str, Any]:
    """The answer of the API; ``message`` counts the messages of the whole conversation from 0."""
    return {
        "parts": [
            {
                **item.part._asdict(),
                "reason": item.reason,
                "spans": [_span_json(span, item.turns) for span in item.spans],
            }
            for item in found
        ]
    }


def _span_json(span: Span, turns: list[int]) -> dict[str, Any]:
    turn = turns[span.message] if span.message < len(turns) else None
    return {**span._asdict(), "note": translated(span.note), "turn": turn}
