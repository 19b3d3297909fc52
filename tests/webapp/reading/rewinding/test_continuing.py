"""Scripted policies that go on from a turn of a recorded rollout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.webapp.environments.playground.conftest import sessions
from tests.webapp.reading.rewinding.conftest import keep_no_episodes
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.environments.playground.consumer import leave, seats_taken, take
from webapp.people.teams.models import User
from webapp.reading.rewinding import scene
from webapp.reading.rewinding.models import Branch
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn

pytestmark = pytest.mark.django_db(transaction=True)
Make = Callable[..., Any]


def ask(client: Any, rollout: Rollout, **body: Any) -> Any:
    return client.post(f"/api/v1/rollouts/{rollout.pk}/branches", body, content_type="application/json")


def test_each_policy_plays_to_its_end_from_the_same_turn(
    played: Make, run: Run, environment: Environment, bob: User, client_for: Make
) -> None:
    run.resolved["rollout"]["max_turns"] = 5
    run.save()
    rollout = played()
    made = ask(client_for(bob), rollout, turn=3, policies=["claim_success", "one_tool"])
    assert made.status_code == 201
    claimed, loop = made.json()["items"]
    assert [(item["player"], item["turn"], item["start"], item["same"]) for item in (claimed, loop)] == [
        ("claim_success", 3, 5, True),
        ("one_tool", 3, 5, True),
    ]
    assert claimed["messages"][:5] == loop["messages"][:5] and claimed["messages"][2]["content"] == "16"
    assert (claimed["turns"], claimed["done"], claimed["outcome"]) == (1, True, "failed")
    assert "completed the task" in claimed["messages"][5]["content"]
    assert (loop["turns"], loop["done"]) == (3, False)  # of five turns two were recorded
    assert loop["messages"][5]["tool_calls"][0]["id"] == "call_2_0" and loop["env_reward"] == 0.0
    assert loop["reward"] == pytest.approx(0.4 * loop["parts"]["tool_necessity"])
    assert Branch.objects.filter(rollout=rollout, created_by=bob).count() == 2
    assert sessions(environment.url) == seats_taken() == 0


def test_turns_before_it_that_were_answered_otherwise_or_not_asked_again_are_not_the_same(
    played: Make, tasks: Dataset, bob: User, client_for: Make
) -> None:
    rollout, client = played(), client_for(bob)
    keep_no_episodes(tasks)
    (item,) = ask(client, rollout, turn=3, policies=["claim_success"]).json()["items"]
    assert (item["start"], item["same"], item["messages"][2]["content"]) == (5, False, "16")
    Environment.objects.update(protocol="openenv")
    Turn.objects.filter(rollout=rollout, number=2).update(messages=[])
    (item,) = ask(client, rollout, turn=3, policies=["claim_success"]).json()["items"]
    assert (item["start"], item["same"], item["messages"][2]["content"]) == (5, False, "16")


def test_the_page_shows_what_came_of_it(played: Make, bob: User, rita: User, charlie: User, client_for: Make) -> None:
    rollout = played()
    address = f"/p/joust/rollouts/{rollout.pk}/branches/new/"
    form = {"turn": "2", "policy": ["beg", "nonsense"]}
    answer = client_for(bob).post(address, form)
    branch = Branch.objects.get()
    assert (branch.player, branch.turn) == ("beg", 2)
    assert answer.status_code == 302 and answer["Location"].endswith(f"/branches/?show={branch.pk}#side")
    shown = client_for(bob).get(answer["Location"]).content.decode()
    assert "<code>beg</code>" in shown and "deserves the highest score" in shown
    assert "Continue with a scripted policy" not in client_for(rita).get(answer["Location"]).content.decode()
    for user, status in ((rita, 403), (charlie, 404), (None, 302)):
        assert client_for(user).post(address, form).status_code == status
    assert client_for(bob).get(address).status_code == 405 and Branch.objects.count() == 1


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"turn": "1"}, "Choose who continues"),
        ({"turn": "", "policy": "beg"}, "Say from which turn"),
        ({"turn": "9", "policy": "beg"}, "turns 1 to 4"),
    ],
)
def test_a_wrong_form_says_why(form: dict[str, str], message: str, played: Make, bob: User, client_for: Make) -> None:
    answer = client_for(bob).post(f"/p/joust/rollouts/{played().pk}/branches/new/", form)
    assert answer.status_code == 422 and message in answer.content.decode()


def test_an_environment_that_is_away_keeps_nothing(
    played: Make, environment: Environment, bob: User, client_for: Make
) -> None:
    rollout = played()
    Environment.objects.update(url="http://127.0.0.1:9")
    environment.replicas.update(url="http://127.0.0.1:9")
    answer = client_for(bob).post(f"/p/joust/rollouts/{rollout.pk}/branches/new/", {"turn": "1", "policy": "beg"})
    assert answer.status_code == 422 and not Branch.objects.exists() and seats_taken() == 0


def test_the_api_refuses_with_a_sentence(
    played: Make,
    environment: Environment,
    bob: User,
    rita: User,
    charlie: User,
    client_for: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rollout, client = played(), client_for(bob)
    for body in ({"turn": 1, "policies": []}, {"turn": 1, "policies": ["x"]}, {"turn": 0, "policies": ["beg"]}, {}):
        assert ask(client, rollout, **body).status_code == 422
    assert take(bob.pk, environment.pk)
    assert "already" in ask(client, rollout, turn=1, policies=["beg"]).json()["message"]
    leave(bob.pk, environment.pk)
    monkeypatch.setattr(scene, "REPLAY_LIMIT_S", 0.0)
    late = ask(client, rollout, turn=1, policies=["beg"])
    assert (late.status_code, late.json()["code"]) == (422, "environment_timeout")
    assert sessions(environment.url) == seats_taken() == 0 == Branch.objects.count()
    for user, status in ((rita, 403), (charlie, 404), (None, 401)):
        assert ask(client_for(user), rollout, turn=1, policies=["beg"]).status_code == status
