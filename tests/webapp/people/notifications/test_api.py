"""Notifications and channels over the API: the services of the pages, under the same rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.webapp.people.notifications.conftest import Service, work_off
from webapp.people.notifications.models import Channel, Event, Kind, Notification
from webapp.people.teams.models import AuditEntry, Project, Team, User
from webapp.people.teams.tokens import token_create
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db(transaction=True)
API = "/api/v1/"


@pytest.fixture(autouse=True)
def _asked(sent: list[str]) -> None:
    """No message reaches a real worker."""


def ask(user: User, method: str, path: str, body: Any = None, **token: Any) -> Any:
    """By a script with a token of this person."""
    _made, text = token_create(user=user, name=f"t{AuditEntry.objects.count()}", **({"role": "owner"} | token))
    client = Client(headers={"Authorization": f"Bearer {text}"})
    more = {"data": body, "content_type": "application/json"} if body is not None else {}
    return getattr(client, method)(API + path, **more)


def test_the_list_and_reading(happened: Callable[..., Event], make_run: Any, bob: User, alice: User) -> None:
    for number in range(3):
        happened(run=make_run(created_by=bob, name=f"r{number}"), key=f"a{number}")
    work_off()
    found = ask(bob, "get", "notifications?per_page=2").json()
    assert (found["total"], found["pages"], len(found["items"])) == (3, 2, 2)
    first = found["items"][0]
    run = Run.objects.get(name="r2")
    assert {key: first[key] for key in ("event", "project", "title", "url", "read_at")} == {
        "event": "run_succeeded",
        "project": "joust",
        "title": "Run “r2” succeeded",
        "url": f"/p/joust/runs/{run.pk}/",
        "read_at": None,
    }
    assert ask(alice, "post", "notifications/read", {"ids": [first["id"]]}).json() == {"read": 0}
    assert ask(bob, "post", "notifications/read", {"ids": [first["id"], 1 << 70, -1]}).json() == {"read": 1}
    assert ask(bob, "get", "notifications?unread=true").json()["total"] == 2
    assert ask(bob, "post", "notifications/read", {"project": "elsewhere"}).json() == {"read": 0}
    assert ask(bob, "post", "notifications/read", {}).json() == {"read": 2}


def test_a_token_of_one_project_reads_no_others(
    happened: Callable[..., Event], bob: User, team: Team, project: Project
) -> None:
    other = Project.objects.create(team=team, name="Melee", slug="melee")
    event = Event.objects.create(project=other, kind=Kind.MODEL_PRODUCTION, key="m", subject="m", state="spread")
    Notification.objects.create(event=event, user=bob)
    happened()
    work_off()
    assert ask(bob, "get", "notifications").json()["total"] == 2
    assert [item["project"] for item in ask(bob, "get", "notifications", project=other).json()["items"]] == ["melee"]
    assert ask(bob, "post", "notifications/read", {}, project=other).json() == {"read": 1}


def test_channels_are_made_tried_and_deleted_and_never_show_their_address(
    service: Service, alice: User, bob: User, project: Project
) -> None:
    body = {
        "name": "ops",
        "kind": "json",
        "url": service.url(),
        "secret": "k3y-of-the-channel",
        "events": ["run_failed"],
    }
    made = ask(alice, "post", "projects/joust/channels", body)
    assert made.status_code == 201
    channel = made.json()
    listed = ask(bob, "get", "projects/joust/channels").json()["items"]
    assert listed == [channel]
    assert channel == {
        "id": str(Channel.objects.get().pk),
        "name": "ops",
        "kind": "json",
        "host": f"127.0.0.1:{service.port}",
        "signed": True,
        "events": ["run_failed"],
        "language": "en",
        "failures": 0,
        "paused_at": None,
    }
    assert ask(alice, "post", f"channels/{channel['id']}/test").json() == {"ok": True, "text": "Delivered."}
    service.say((401, {}, "who?"))
    message = "The server refuses us (HTTP 401); check the address and the secret. It said: who?"
    assert ask(alice, "post", f"channels/{channel['id']}/test").json() == {"ok": False, "text": message}
    assert ask(bob, "post", f"channels/{channel['id']}/test").status_code == 403
    assert ask(alice, "delete", f"channels/{channel['id']}", role="editor").status_code == 403
    assert ask(alice, "post", f"channels/{channel['id']}/resume").json() == {"sent": 0}
    assert ask(alice, "delete", f"channels/{channel['id']}").json() == {"deleted": True}
    assert not Channel.objects.exists()


@pytest.mark.parametrize(
    ("wrong", "status", "path"),
    [
        ({"url": "http://127.0.0.1:1/"}, 422, "url"),
        ({"kind": "telegram"}, 422, "kind"),
        ({"events": ["birthday"]}, 422, "events"),
        ({"events": ["run_failed", "birthday"]}, 422, "events"),
        ({"language": "xx"}, 422, "language"),
        ({"name": "<b>"}, 422, "name"),
        ({"colour": "red"}, 422, "body.body.colour"),
    ],
)
def test_a_channel_that_cannot_be_is_refused_by_field(
    service: Service, alice: User, project: Project, wrong: dict[str, Any], status: int, path: str
) -> None:
    body = {"name": "ops", "kind": "json", "url": service.url(), "events": ["run_failed"]} | wrong
    answer = ask(alice, "post", "projects/joust/channels", body)
    assert (answer.status_code, answer.json()["detail"][0]["path"]) == (status, path)
    assert not Channel.objects.exists()


def test_a_name_that_is_taken_is_refused_by_field(service: Service, alice: User, make_channel: Any) -> None:
    make_channel(name="ops")
    body = {"name": "ops", "kind": "json", "url": service.url(), "events": ["run_failed"]}
    answer = ask(alice, "post", "projects/joust/channels", body)
    assert (answer.status_code, answer.json()["detail"][0]["path"]) == (422, "name")
