"""Scoring recorded rollouts over the API: started, looked at, cancelled; and what a comparison says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.chat_stub import Stub, stub
from tests.webapp.evaluation.rescoring.conftest import OWN, SOLVED, spec, two
from tests.working import done
from webapp.evaluation.rescoring.models import Rescoring
from webapp.people.teams.models import User
from webapp.runs.models import Run

__all__ = ["spec", "stub", "two"]
pytestmark = pytest.mark.django_db
Maker = Callable[..., Any]
COMPARE = "/api/v1/projects/joust/compare"


def post(client: Client, path: str, body: dict[str, Any] | None = None) -> Any:
    return client.post(path, json.dumps(body or {}), content_type="application/json")


def test_it_is_started_followed_and_found_in_the_comparison(
    two: list[Run], spec: Maker, client_for: Callable[..., Client], bob: User, rita: User
) -> None:
    client, reference, ids = client_for(bob), spec(OWN, SOLVED), [str(run.pk) for run in two]
    before = client.get(COMPARE, {"c": ids, "spec": reference}).json()
    assert before["lacking"][0] == {
        "id": ids[0],
        "rollouts": 8,
        "components": {"regex_match": {"computed": 0, "unscored": 8, "failed": {}}},
    }
    assert before["to_score"] == {"rollouts": 15, "asks": "", "refusal": "", "newest": None}
    made = post(client, f"{COMPARE}/rescore", {"runs": ids, "spec": reference})
    assert made.status_code == 201
    found = made.json()
    assert (found["state"], found["done"], found["total"], found["created_by"]) == ("waiting", 0, 0, "bob")
    assert (found["spec"], found["runs"], found["error"]) == (reference.removeprefix("reward:"), ids, None)
    assert post(client, f"{COMPARE}/rescore", {"runs": ids, "spec": reference}).json() == found
    during = client.get(COMPARE, {"c": ids, "spec": reference}).json()
    assert during["to_score"]["newest"] == found
    done(Rescoring.objects.get())
    state = client_for(rita).get(f"/api/v1/rescorings/{found['id']}").json()
    assert (state["state"], state["done"], state["total"]) == ("done", 15, 15) and state["ended_at"]
    after = client.get(COMPARE, {"c": ids, "spec": reference}).json()
    assert after["to_score"] is None
    assert after["lacking"][1]["components"] == {"regex_match": {"computed": 7, "unscored": 0, "failed": {}}}
    assert after["items"][0]["figures"]["reward"]["value"] == pytest.approx(0.5625)
    nothing = post(client, f"{COMPARE}/rescore", {"runs": ids, "spec": reference})
    assert nothing.status_code == 409 and "nothing is left to score" in nothing.json()["message"]


def test_why_a_value_is_missing_is_reported(
    two: list[Run], spec: Maker, client_for: Callable[..., Client], bob: User
) -> None:
    client, ids = client_for(bob), [str(run.pk) for run in two]
    reference = spec({"name": "task_success", "weight": 1.0, "params": {}})
    post(client, f"{COMPARE}/rescore", {"runs": ids, "spec": reference})
    done(Rescoring.objects.get())
    found = client.get(COMPARE, {"c": ids, "spec": reference}).json()
    lack = found["lacking"][0]["components"]["task_success"]
    assert lack == {"computed": 0, "unscored": 0, "failed": {"`task_success` has no value for this episode.": 8}}
    assert "reward" not in found["items"][0]["figures"]


def test_it_is_cancelled(two: list[Run], spec: Maker, client_for: Callable[..., Client], bob: User, rita: User) -> None:
    client = client_for(bob)
    body = {"runs": [str(run.pk) for run in two], "spec": spec(OWN, SOLVED)}
    made = post(client, f"{COMPARE}/rescore", body).json()
    path = f"/api/v1/rescorings/{made['id']}/cancel"
    assert post(client_for(rita), path).status_code == 403
    ended = post(client, path).json()
    assert ended["state"] == "cancelled" and ended["ended_at"]
    assert post(client, path).json() == ended


def test_judges_need_a_confirmation(
    two: list[Run], spec: Maker, client_for: Callable[..., Client], bob: User, stub: Stub
) -> None:
    client, ids = client_for(bob), [str(run.pk) for run in two]
    judge = {"name": "judge", "weight": 1.0, "params": {"url": stub.url, "model": "gpt-oss"}}
    body = {"runs": ids, "spec": spec(judge)}
    asks = "It asks gpt-oss up to 15 times, which takes time and may cost money."
    assert client.get(COMPARE, {"c": ids, "spec": body["spec"]}).json()["to_score"]["asks"] == asks
    refused = post(client, f"{COMPARE}/rescore", body)
    assert refused.status_code == 422 and asks in refused.json()["message"]
    assert post(client, f"{COMPARE}/rescore", body | {"confirmed": True}).status_code == 201
