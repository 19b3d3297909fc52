"""A person who has as much being scored as one may: what each address answers, and what still works."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from training.errors import ScorerDied
from training.rewards.scorer.wire import Said
from training.words import Sentence
from webapp.people.teams.models import Project, User
from webapp.rewards.cases import reward_case_create
from webapp.rewards.models import RewardCase, RewardSpec
from webapp.rewards.scorers import WAIT_S, Places, scorers

TALK = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
REFUSED = "You have reached the limit of scoring for one person; wait a moment."


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """No person may have anything scored."""
    monkeypatch.setattr(scorers, "_places", Places(jobs_per_person=0))


@pytest.fixture
def spec(make_reward_spec: Callable[..., RewardSpec]) -> RewardSpec:
    return make_reward_spec(components=[{"name": "task_success", "weight": 1.0, "params": {}}])


def test_the_api_refuses_in_the_one_shape_and_says_when_to_come_back(
    full: None, spec: RewardSpec, rita: User, client_for: Callable[..., Client]
) -> None:
    body = json.dumps({"conversation": json.dumps(TALK)})
    answer = client_for(rita).post(f"/api/v1/rewards/{spec.pk}/try", body, content_type="application/json")
    assert (answer.status_code, answer["Retry-After"]) == (429, str(WAIT_S))
    error = answer.json()
    assert set(error) == {"ok", "code", "message", "detail", "request_id"}
    assert (error["code"], error["message"]) == ("rate_limited", REFUSED)


def test_the_page_says_so_next_to_the_box(
    full: None, project: Project, spec: RewardSpec, rita: User, client_for: Callable[..., Client]
) -> None:
    address, client = reverse("reward-try", args=[project.slug, spec.pk]), client_for(rita)
    whole = client.post(address, {"conversation": json.dumps(TALK)})
    assert (whole.status_code, whole["Retry-After"]) == (429, str(WAIT_S)) and REFUSED in whole.content.decode()
    part = client.post(address, {"conversation": json.dumps(TALK)}, headers={"HX-Request": "true"})
    assert part.status_code == 200 and REFUSED in part.content.decode()


def test_the_page_of_a_spec_shows_the_rest(
    full: None, project: Project, spec: RewardSpec, rita: User, bob: User, client_for: Callable[..., Client]
) -> None:
    case = RewardCase(name="c", messages=TALK, prompt_length=1, env_reward=1.0, expected={"task_success": [1, 1]})
    reward_case_create(case=case, project=project, user=bob)
    answer = client_for(rita).get(reverse("reward-detail", args=[project.slug, spec.pk]))
    assert answer.status_code == 200 and REFUSED in answer.content.decode()


def test_a_process_that_died_has_a_code_and_a_sentence(
    project: Project,
    spec: RewardSpec,
    rita: User,
    client_for: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    died = Said(why=Sentence.of("The scoring process ended (SIGKILL)."), code=ScorerDied.code)
    monkeypatch.setattr(scorers, "ask", lambda _person, asked, _limit_s: [{"task_success": died} for _one in asked])
    client, body = client_for(rita), json.dumps({"conversation": json.dumps(TALK)})
    answer = client.post(f"/api/v1/rewards/{spec.pk}/try", body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (422, "scorer_died")
    page = client.post(reverse("reward-try", args=[project.slug, spec.pk]), {"conversation": json.dumps(TALK)})
    assert page.status_code == 422 and "ended (SIGKILL)" in page.content.decode()


def test_who_has_tried_before_is_not_held_back(spec: RewardSpec, rita: User, client_for: Callable[..., Client]) -> None:
    body = json.dumps({"conversation": json.dumps({"messages": TALK, "env_reward": 1.0})})
    tries: list[Any] = [
        client_for(rita).post(f"/api/v1/rewards/{spec.pk}/try", body, content_type="application/json") for _ in range(9)
    ]
    assert [(answer.status_code, answer.json()["total"]) for answer in tries] == [(200, 1.0)] * 9
