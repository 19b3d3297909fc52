"""The page of a rewound rollout, the links to it, and the replay over the API."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.webapp.environments.playground.conftest import sessions
from tests.webapp.reading.rewinding.conftest import TALK
from training.errors import EnvironmentUnreachable
from webapp.environments.models import Environment
from webapp.environments.playground.consumer import leave, seats_taken, take
from webapp.people.teams.models import User
from webapp.reading.rewinding import scene
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn

pytestmark = pytest.mark.django_db(transaction=True)
Make = Callable[..., Any]


def page(client: Any, rollout: Rollout, query: str = "", status: int = 200) -> str:
    answer = client.get(f"/p/joust/rollouts/{rollout.pk}/rewind/{query}")
    assert answer.status_code == status
    return str(answer.content.decode())


def data(text: str) -> Any:
    found = re.search(r'<script id="play-data" type="application/json">(.*?)</script>', text)
    assert found
    return json.loads(found[1])


def test_the_page_begins_at_the_turn_that_was_asked_for(played: Make, bob: User, client_for: Make) -> None:
    rollout, client = played(), client_for(bob)
    text = page(client, rollout, "?turn=3")
    assert data(text) == {
        "socket": f"/ws/rollouts/{rollout.pk}/rewind/?language=en",
        "turn": 3,
        "last": 4,
        "branches": f"/p/joust/rollouts/{rollout.pk}/branches/",
        "titles": {"task_success": "Task success", "tool_necessity": "Tool necessity"},
        "weights": {"task_success": 0.6, "tool_necessity": 0.4},
    }
    assert 'value="3"' in text and 'max="4"' in text
    for query, turn in (("", 1), ("?turn=9", 4), ("?turn=0", 1), ("?turn=x", 1), ("?turn=99999999", 1)):
        assert data(page(client, rollout, query))["turn"] == turn


def test_a_rollout_that_cannot_be_rewound_says_why_and_leads_back(
    played: Make, run: Run, bob: User, client_for: Make
) -> None:
    rollout = played()
    Environment.objects.all().delete()
    text = page(client_for(bob), rollout)
    assert "cannot be rewound" in text and "“arithmetic” is not registered" in text and "play-data" not in text
    assert f'href="/p/joust/rollouts/{rollout.pk}/"' in text


def test_viewers_strangers_and_visitors(played: Make, rita: User, charlie: User, client_for: Make) -> None:
    rollout = played()
    assert client_for(rita).get(f"/p/joust/rollouts/{rollout.pk}/rewind/").status_code == 403
    assert client_for(charlie).get(f"/p/joust/rollouts/{rollout.pk}/rewind/").status_code == 404
    assert client_for(None).get(f"/p/joust/rollouts/{rollout.pk}/rewind/").status_code == 302
    assert client_for(rita).post(f"/p/joust/rollouts/{rollout.pk}/rewind/").status_code == 405


def test_each_turn_of_the_policy_leads_there(played: Make, run: Run, bob: User, rita: User, client_for: Make) -> None:
    rollout = played()
    address = f"/p/joust/rollouts/{rollout.pk}/"
    text = client_for(bob).get(address).content.decode()
    assert re.findall(r'rewind/\?turn=(\d+)"', text) == ["1", "2", "3", "4"]
    assert "/rewind/" not in client_for(rita).get(address).content.decode()
    Run.objects.update(resolved=run.resolved | {"environment": {}})
    assert "/rewind/" not in client_for(bob).get(address).content.decode()


def ask(client: Any, rollout: Rollout, **body: Any) -> Any:
    return client.post(f"/api/v1/rollouts/{rollout.pk}/rewind", body, content_type="application/json")


def test_the_api_says_that_every_answer_is_the_recorded_one(
    played: Make, environment: Environment, bob: User, client_for: Make
) -> None:
    rollout, client = played(), client_for(bob)
    found = ask(client, rollout).json()
    seconds = found.pop("seconds")
    assert 0 < seconds < 2 and len(found.pop("messages")) == 1 + 7
    assert found == {
        "environment": "arithmetic",
        "turns": 4,
        "checked": True,
        "over": True,
        "differing": [],
        "difference": None,
    }
    part = ask(client, rollout, turn=2).json()
    assert (part["turns"], part["over"], len(part["messages"])) == (1, False, 3)
    assert sessions(environment.url) == seats_taken() == 0


def test_the_api_says_where_an_answer_is_another_one(played: Make, bob: User, client_for: Make) -> None:
    rollout = played()
    Turn.objects.filter(rollout=rollout, number=3).update(parse_error="")  # as runs recorded it before
    found = ask(client_for(bob), rollout).json()
    assert found["difference"]["turn"] == 2 and found["difference"]["what"] == "messages"
    assert "not valid JSON" in found["difference"]["recorded"] != found["difference"]["now"]


def test_the_api_refuses_with_a_sentence(
    played: Make, environment: Environment, bob: User, client_for: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout, client = played(), client_for(bob)
    wrong = ask(client, rollout, turn=9)
    assert wrong.status_code == 422 and "turns 1 to 4" in wrong.json()["message"]
    assert ask(client, rollout, turn=0).status_code == 422 == ask(client, rollout, more=1).status_code
    assert take(bob.pk, environment.pk)
    busy = ask(client, rollout)
    leave(bob.pk, environment.pk)
    assert busy.status_code == 422 and "already" in busy.json()["message"]

    async def away(_reach: Any) -> Any:
        raise EnvironmentUnreachable("The environment cannot be reached.")

    monkeypatch.setattr("webapp.environments.playground.play.open_session", away)
    gone = ask(client, rollout)
    assert (gone.status_code, gone.json()["code"]) == (422, "environment_unreachable") and seats_taken() == 0


def test_the_api_ends_a_replay_that_takes_too_long(
    played: Make, environment: Environment, bob: User, client_for: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene, "REPLAY_LIMIT_S", 0.0)
    late = ask(client_for(bob), played())
    assert (late.status_code, late.json()["code"]) == (422, "environment_timeout")
    assert sessions(environment.url) == seats_taken() == 0


def test_the_api_knows_roles(played: Make, rita: User, charlie: User, client_for: Make) -> None:
    rollout = played(TALK[:1], status="truncated")
    assert ask(client_for(rita), rollout).status_code == 403
    assert ask(client_for(charlie), rollout).status_code == 404
    assert ask(client_for(None), rollout).status_code == 401
    assert client_for(rita).get(f"/api/v1/rollouts/{rollout.pk}/rewind").status_code == 405
