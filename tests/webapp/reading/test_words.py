"""The words that earned a reward: what their address answers to a person who asks for too many at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.webapp.reading.test_rollout import TALK
from webapp.people.teams.models import User
from webapp.rewards.scorers import WAIT_S, Places, scorers

Make = Callable[..., Any]


def test_words_are_refused_to_a_person_who_has_too_much_scored(
    trained: Make, play: Make, rita: User, client_for: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = play(trained(), talk=TALK, parts={"tool_necessity": 1.0})
    monkeypatch.setattr(scorers, "_places", Places(jobs_per_person=0))
    answer = client_for(rita).get(f"/api/v1/rollouts/{rollout.pk}/words")
    assert (answer.status_code, answer["Retry-After"], answer.json()["code"]) == (429, str(WAIT_S), "rate_limited")
