"""Numbers of words as one text on their way to the database, and numbers again on their way back."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from webapp.runs.rollouts.models import Rollout, Turn

pytestmark = pytest.mark.django_db


def test_numbers_come_back_as_they_were(make_run: Any) -> None:
    run = make_run()
    rollout = Rollout.objects.create(run=run, attempt=1, step=1, group=0, index=0, started_at=timezone.now(), seq=1)
    kept = [None, [], [7], [-(2**31), -1, 0, 2**31 - 1], list(range(4_000))]
    for number, words in enumerate(kept):
        Turn.objects.create(rollout=rollout, run=run, number=number, messages=[], words=words, seq=number)
    assert list(Turn.objects.order_by("number").values_list("words", flat=True)) == kept

    def having(*numbers: int) -> list[int]:
        return list(
            Turn.objects.filter(words__contains=list(numbers)).order_by("number").values_list("number", flat=True)
        )

    assert (having(7), having(0, -1), having(5000)) == ([2, 4], [3], [])
    assert list(Turn.objects.filter(words__isnull=True).values_list("number", flat=True)) == [0]
    turns = list(Turn.objects.order_by("number"))
    for turn in turns:
        turn.words = [turn.number]
    Turn.objects.bulk_update(turns, ["words"])
    assert list(Turn.objects.order_by("number").values_list("words", flat=True)) == [[0], [1], [2], [3], [4]]
