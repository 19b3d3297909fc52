"""A branch's reward by the spec that scored the rollout: each component by itself, so that none takes another along."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import NamedTuple

from django.utils.translation import gettext as _

from training.config import RewardComponent
from training.errors import TiltyardError
from training.rewards.base import Episode
from training.rewards.combining import counts_for, terms_of, total_of
from training.rewards.scoring import score_episode
from training.rows import categories_of
from webapp.rewards.services import scorers
from webapp.text import in_words

SCORE_LIMIT_S = 5.0


class Scored(NamedTuple):
    """Values by component, ``None`` where one is missing, and why; ``reward`` is missing where one of them is."""

    parts: dict[str, float | None]
    missing: dict[str, str]
    reward: float | None


def scored(episode: Episode, components: Sequence[RewardComponent], step: int) -> Scored:
    """Score within ``SCORE_LIMIT_S``. Judges, reward models and custom code are not asked: they are missing."""
    counted = [part for part in components if counts_for(part, categories_of(episode.row))]
    try:
        found = scorers.submit(_scored, episode, counted, step).result(timeout=SCORE_LIMIT_S)
        return found._replace(missing={name: in_words(why) for name, why in found.missing.items()})
    except FutureTimeout:
        late = _("Scoring took longer than %(s)g seconds.") % {"s": SCORE_LIMIT_S}
        return Scored({part.name: None for part in counted}, {part.name: late for part in counted}, None)


def _scored(episode: Episode, components: list[RewardComponent], step: int) -> Scored:
    parts: dict[str, float | None] = {}
    missing: dict[str, str] = {}
    for part in components:
        try:
            alone = part.model_copy(update={"gate": None, "categories": []})
            parts[part.name] = score_episode(episode, [alone], ask_outside=False).parts[part.name]
        except TiltyardError as exc:
            parts[part.name], missing[part.name] = None, exc.message
    known = {name: value for name, value in parts.items() if value is not None}
    whole = components and len(known) == len(parts)
    return Scored(parts, missing, total_of(terms_of(known, components, step), components) if whole else None)
