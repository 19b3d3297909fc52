"""A branch's reward by the spec that scored the rollout: each component by itself, so that the failure of one does not
affect others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from training.config import RewardComponent
from training.rewards.base import Episode
from training.rewards.combining import counts_for, terms_of, total_of
from training.rewards.scorer.wire import Asked
from training.rows import categories_of
from webapp.common.errors import TooMany
from webapp.common.text import in_words
from webapp.rewards.scorers.asking import scorers, unscored

SCORE_LIMIT_S = 5.0


class Scored(NamedTuple):
    """Values by component, ``None`` where one is missing, and why; ``reward`` is missing where one of them is."""

    parts: dict[str, float | None]
    missing: dict[str, str]
    reward: float | None


def scored(episode: Episode, components: Sequence[RewardComponent], step: int, user_id: object) -> Scored:
    """Score within ``SCORE_LIMIT_S``. Judges, reward models and custom code are not asked: they are missing."""
    counted = [part for part in components if counts_for(part, categories_of(episode.row))]
    asked = [Asked(episode=episode, components=counted, weighed=True)]
    try:
        (said,) = scorers.ask(user_id, asked, SCORE_LIMIT_S)
    except TooMany as exc:  # the branch is kept also without a score
        (said,) = unscored(asked, str(exc))
    missing = {name: in_words(one.why) for name, one in said.items() if one.value is None}
    known = {name: one.value for name, one in said.items() if one.value is not None}
    reward = total_of(terms_of(known, counted, step), counted) if counted and not missing else None
    return Scored({name: one.value for name, one in said.items()}, missing, reward)
