"""A language model as judge, through any OpenAI-compatible endpoint. Its failure is missing, never 0."""

from __future__ import annotations

from typing import Any

from training.errors import RewardFault
from training.rewards.base import Component, Episode
from training.rewards.judge.asking import judged
from training.rewards.judge.params import RubricParams
from training.words import _


def judge(episode: Episode, params: RubricParams) -> float:
    """The judge's mark, from 0 for the lowest to 1 for the highest."""

    def read(verdict: dict[str, Any]) -> float:
        mark = verdict.get("score")
        if isinstance(mark, bool) or not isinstance(mark, (int, float)):
            raise RewardFault("The judge gave no mark.")
        if not params.lowest <= mark <= params.highest:
            raise RewardFault("The judge's mark is outside its range.")
        return (mark - params.lowest) / (params.highest - params.lowest)

    form = f'{{"reason": "<one sentence>", "score": <number from {params.lowest:g} to {params.highest:g}>}}'
    return judged(episode, params, params.rubric, form, read, params.truth_field)


JUDGE = (
    Component(
        "judge",
        _("Judge"),
        _("A language model scores the transcript by your rubric."),
        judge,
        RubricParams,
        source="Tiltyard; any OpenAI-compatible endpoint",
        formula="(mark − lowest) / (highest − lowest); missing when the judge fails or is late",
        outside=True,
    ),
)
