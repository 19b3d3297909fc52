"""The bell, the list, a person's settings and a project's channels."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from tests.webapp.people.notifications.conftest import EVENTS, Service, work_off
from webapp.common.secrets.models import Secret
from webapp.people.notifications.models import Channel, Delivery, Event, Kind, Notification, Reader, Watch
from webapp.people.notifications.selectors import MOST_COUNTED, projects_and_unread
from webapp.people.teams.models import ApiToken, Membership, Project, Team, User
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db(transaction=True)
CHANNELS = "/p/joust/settings/channels/"


@pytest.fixture(autouse=True)
def _asked(sent: list[str]) -> None:
    """No message reaches a real worker."""


@pytest.fixture
def notified(happened: Callable[..., Event], make_run: Callable[..., Run], bob: User) -> list[Notification]:
    """Two notifications of bob's, the failed run's first."""
    happened(run=make_run(name="good", created_by=bob))
    error = {"code": "storage_full", "boundary": "storage", "message": "<script>", "hint": ""}
    happened(Kind.RUN_FAILED, run=make_run(name="bad", created_by=bob), facts={"error": error})
    work_off()
    return list(Notification.objects.filter(user=bob))


def form(service: Service, **over: Any) -> dict[str, Any]:
    fields = {"name": "ops", "kind": "feishu", "url": service.url(), "secret": "k3y-of-the-channel", "language": "en"}
    return {**fields, "events": ["run_failed", "run_paused"]} | over


# --- The list and the bell ------------------------------------------------------------------------------------------
def test_the_list_shows_what_happened_and_leads_there(
    client_for: Callable[..., Client], bob: User, notified: list[Notification]
) -> None:
    client = client_for(bob)
    page = client.get("/notifications/").content.decode()
    assert page.index("Run “bad” failed") < page.index("Run “good” succeeded")
    assert "The disk is full." in page and "&lt;script&gt;" in page and "<script>" not in page.split("</head>")[1][:99]
    assert page.count("data-unread") == 2 and 'class="bell-count">2<' in page
    opened = client.get(f"/notifications/{notified[0].pk}/open/")
    assert opened["Location"] == f"/p/joust/runs/{notified[0].event.object_id}/"
    assert client.get("/notifications/?unread=1").content.decode().count("data-unread") == 1


def test_read_and_unread_and_all_of_a_project(
    client_for: Callable[..., Client], bob: User, notified: list[Notification], team: Team
) -> None:
    client, other = client_for(bob), Project.objects.create(team=team, name="Melee", slug="melee")
    apart = Event.objects.create(project=other, kind="model_production", key="m", subject="m", state="spread")
    Notification.objects.create(event=apart, user=bob)
    mark = f"/notifications/{notified[0].pk}/read/"
    assert client.post(f"{mark}?unread=1", {"read": "yes"})["Location"] == "/notifications/?unread=1"
    assert Notification.objects.filter(read_at=None).count() == 2
    client.post(mark, {"read": "no"})
    assert Notification.objects.filter(read_at=None).count() == 3
    said = client.post("/notifications/read/", {"project": "melee"}, follow=True).content.decode()
    assert "1 notification is read now." in said
    assert Notification.objects.filter(read_at=None).count() == 2
    client.post("/notifications/read/", {"project": ""})
    assert Notification.objects.filter(read_at=None).count() == 0
    page = client.get("/notifications/?project=melee").content.decode()
    assert "Model “m” is in production" in page and "Run “bad”" not in page


def test_who_left_the_team_sees_nothing_more(
    client_for: Callable[..., Client], bob: User, notified: list[Notification]
) -> None:
    Membership.objects.filter(user=bob).delete()
    client = client_for(bob)
    page = client.get("/notifications/").content.decode()
    assert "Run “bad”" not in page and "bell-count" not in page and "No notifications yet" in page
    assert client.get(f"/notifications/{notified[0].pk}/open/").status_code == 404
    assert client.post(f"/notifications/{notified[0].pk}/read/").status_code == 404
    assert client.post("/notifications/read/").status_code == 302
    assert Notification.objects.filter(read_at=None).count() == 2


def test_no_person_marks_the_notifications_of_others(
    client_for: Callable[..., Client], alice: User, notified: list[Notification]
) -> None:
    client = client_for(alice)
    assert client.post(f"/notifications/{notified[0].pk}/read/").status_code == 404
    client.post("/notifications/read/")
    assert Notification.objects.filter(read_at=None).count() == 2


def test_a_run_that_is_gone_has_no_link(
    client_for: Callable[..., Client], bob: User, notified: list[Notification]
) -> None:
    Run.objects.filter(name="bad").update(removed_at="2026-01-01T00:00:00Z")
    page = client_for(bob).get("/notifications/").content.decode()
    assert f"/notifications/{notified[0].pk}/open/" not in page and f"/notifications/{notified[1].pk}/open/" in page


def test_the_bell_asks_for_itself_and_counts_up_to_a_hundred(
    client_for: Callable[..., Client], bob: User, project: Project
) -> None:
    client = client_for(bob)
    assert "bell-count" not in client.get("/notifications/bell/").content.decode()
    events = Event.objects.bulk_create(
        [Event(project=project, kind="run_failed", key=f"b{n}", subject="r", state="spread") for n in range(120)]
    )
    Notification.objects.bulk_create([Notification(event=event, user=bob) for event in events])
    answer = client.get("/notifications/bell/")
    assert 'class="bell-count">99+<' in answer.content.decode() and "no-store" in answer["Cache-Control"]


def test_the_list_costs_the_same_queries_however_long_it_is(
    client_for: Callable[..., Client],
    bob: User,
    notified: list[Notification],
    make_run: Any,
    happened: Any,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    for number in range(20):
        happened(run=make_run(created_by=bob), key=f"more{number}")
    work_off()
    client = client_for(bob)
    with django_assert_max_num_queries(12):
        assert client.get("/notifications/").content.decode().count("data-unread") == 22


def test_the_bell_looks_at_no_more_than_it_counts(bob: User, charlie: User, project: Project) -> None:
    """It is on every page: with 5,000 unread it took 110 ms of each, once for every project."""
    other = Project.objects.create(team=project.team, name="Other", slug="other")
    foreign = Project.objects.get(slug="elsewhere")
    events = Event.objects.bulk_create(
        Event(project=where, kind="run_failed", key=f"{where.slug}{n}", subject="r", state="spread")
        for where, count in ((project, 30), (other, 40), (foreign, 50))
        for n in range(count)
    )
    notified = Notification.objects.bulk_create(Notification(event=event, user=bob) for event in events)
    projects, unread = projects_and_unread(bob)
    assert ([found.slug for found in projects], unread) == (["joust", "other"], 70)
    Notification.objects.filter(pk__in=[item.pk for item in notified[:25]]).update(read_at=timezone.now())
    assert projects_and_unread(bob)[1] == 45 and projects_and_unread(charlie)[1] == 0
    limited = User.objects.get(pk=bob.pk)
    limited.api_token = ApiToken(user=bob, project=other)  # type: ignore[attr-defined]
    assert projects_and_unread(limited) == ([(other.pk, "Other", "other")], 40)
    assert projects_and_unread(AnonymousUser()) == ([], 0)
    Notification.objects.bulk_create(
        Notification(event=event, user=charlie)
        for event in Event.objects.bulk_create(
            Event(project=foreign, kind="run_failed", key=f"c{n}", subject="r", state="spread") for n in range(120)
        )
    )
    with CaptureQueriesContext(connection) as caught:
        assert projects_and_unread(charlie)[1] == MOST_COUNTED == 100
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {caught.captured_queries[0]['sql']}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "InitPlan" in plan and "SubPlan" not in plan and "Limit" in plan  # counted once, and no further


# --- A person's settings --------------------------------------------------------------------------------------------
def test_settings_are_kept_and_shown_again(client_for: Callable[..., Client], bob: User, project: Project) -> None:
    client = client_for(bob)
    data = {f"scope-{project.pk}": "all", f"mail-{project.pk}": "on", "told": ["run_failed"], "language": "zh-hans"}
    assert client.post("/notifications/settings/", data).status_code == 302
    watch, reader = Watch.objects.get(), Reader.objects.get()
    assert (watch.user, watch.project, watch.scope, watch.mail) == (bob, project, "all", True)
    assert (reader.language, len(reader.muted), "run_failed" in reader.muted) == ("zh-hans", 6, False)
    page = client.get("/notifications/settings/").content.decode()
    assert re.findall(r'value="(run_[a-z]+)"[^>]* checked', page) == ["run_failed"]
    assert '<option value="all" selected>' in page and '<option value="zh-hans" selected>' in page


@pytest.mark.parametrize("wrong", [{"scope": "every"}, {"language": "xx"}, {"told": ["birthday"]}])
def test_settings_that_cannot_be_read_change_nothing(
    client_for: Callable[..., Client], bob: User, project: Project, wrong: dict[str, Any]
) -> None:
    data = {"scope": "all", "told": ["run_failed"], "language": "en"} | wrong
    data[f"scope-{project.pk}"] = data.pop("scope")
    assert client_for(bob).post("/notifications/settings/", data).status_code == 422
    assert not Watch.objects.exists() and not Reader.objects.exists()


def test_no_person_watches_a_project_of_others(
    client_for: Callable[..., Client], charlie: User, project: Project
) -> None:
    mine = Project.objects.get(slug="elsewhere")
    data = {f"scope-{project.pk}": "all", f"scope-{mine.pk}": "all", "told": [], "language": "en"}
    client_for(charlie).post("/notifications/settings/", data)
    assert [watch.project for watch in Watch.objects.all()] == [mine]


# --- Channels -------------------------------------------------------------------------------------------------------
def test_an_owner_adds_tries_and_deletes_a_channel(
    client_for: Callable[..., Client], alice: User, service: Service, project: Project
) -> None:
    client = client_for(alice)
    assert client.post(CHANNELS, form(service)).status_code == 302
    channel = Channel.objects.get()
    assert (channel.kind, channel.signed, channel.events) == ("feishu", True, ["run_failed", "run_paused"])
    assert channel.host == f"127.0.0.1:{service.port}"
    page = client.get(CHANNELS).content.decode()
    assert "ops is added. Send a test to see whether it works." in page
    assert "ops" in page and "nothing sent yet" in page and f"127.0.0.1:{service.port}" in page
    assert "s3cret-in-url" not in page and "k3y-of-the-channel" not in page
    service.say((200, {}, {"code": 19021, "msg": "sign match fail"}))
    tried = client.post(f"{CHANNELS}{channel.pk}/test/").content.decode()
    assert "ops did not accept the test message" in tried and "does not accept the signature" in tried
    service.say((200, {}, {"code": 0}))
    assert "ops accepted the test message" in client.post(f"{CHANNELS}{channel.pk}/test/").content.decode()
    assert service.got[0].json["sign"] and not Delivery.objects.exists()
    client.post(f"{CHANNELS}{channel.pk}/delete/")
    assert not Channel.objects.exists()


@pytest.mark.parametrize(
    ("field", "wrong", "message"),
    [
        ("url", {"url": "http://10.0.0.1/hook"}, "TILTYARD_OUTBOUND_ALLOW"),
        ("url", {"url": "http://169.254.169.254/latest"}, "which is never allowed"),
        ("url", {"url": "file:///etc/passwd"}, "must start with http"),
        ("url", {"url": "http://user:pw@8.8.8.8/"}, "must not contain a user name or password"),
        ("url", {"url": "http://8.8.8.8/a b"}, "without spaces or #"),
        ("url", {"url": "http://8.8.8.8/#x"}, "without spaces or #"),
        ("url", {"url": "http://[::1"}, "This is not a valid address."),
        ("url", {"url": "http://8.8.8.8/" + "a" * 1000}, "at most 1000"),
        ("name", {"name": "<b>"}, "Use letters"),
        ("kind", {"kind": "telegram"}, "not one of the available choices"),
        ("events", {"events": []}, "required"),
        ("events", {"events": ["birthday"]}, "not one of the available choices"),
        ("secret", {"secret": "ключ"}, "printable ASCII"),
    ],
)
def test_a_channel_that_cannot_be_is_not_made_and_the_form_says_why(
    client_for: Callable[..., Client],
    alice: User,
    project: Project,
    service: Service,
    field: str,
    wrong: dict[str, Any],
    message: str,
) -> None:
    answer = client_for(alice).post(CHANNELS, form(service) | wrong)
    assert (answer.status_code, Channel.objects.count()) == (422, 0)
    assert any(message in error for error in answer.context["form"].errors[field]), answer.context["form"].errors
    assert "k3y-of-the-channel" not in answer.content.decode()


def test_names_are_taken_once_in_a_project(
    client_for: Callable[..., Client], alice: User, project: Project, service: Service
) -> None:
    client = client_for(alice)
    client.post(CHANNELS, form(service))
    assert "This project has a channel with this name." in client.post(CHANNELS, form(service)).content.decode()
    assert Secret.objects.filter(kind="webhook").count() == 1 and Channel.objects.count() == 1


def test_members_see_where_events_go_and_change_nothing(
    client_for: Callable[..., Client], rita: User, make_channel: Callable[..., Channel]
) -> None:
    channel, client = make_channel(name="ops"), client_for(rita)
    page = client.get(CHANNELS).content.decode()
    assert "ops" in page and "Send a test" not in page and "Add a channel" not in page
    for act in ("test", "resume", "delete"):
        assert client.post(f"{CHANNELS}{channel.pk}/{act}/").status_code == 403


def test_a_paused_channel_says_so_and_continues_at_a_click(
    client_for: Callable[..., Client],
    alice: User,
    service: Service,
    make_channel: Callable[..., Channel],
    happened: Callable[..., Event],
) -> None:
    channel, client = make_channel(), client_for(alice)
    service.say((404, {}, "no_service"))
    Channel.objects.update(failures=7)
    happened()
    work_off()
    page = client.get(CHANNELS).content.decode()
    assert 'data-state="paused"' in page and "Paused after 8 failures in a row" in page
    assert "No such webhook (HTTP 404)" in page
    answer = client.post(f"{CHANNELS}{channel.pk}/resume/", follow=True).content.decode()
    assert "is used again; 0 messages that were held follow" in answer and 'data-state="paused"' not in answer


def test_the_page_says_when_it_is_tried_again(
    client_for: Callable[..., Client],
    alice: User,
    service: Service,
    make_channel: Callable[..., Channel],
    happened: Callable[..., Event],
) -> None:
    make_channel()
    service.say((503, {}, "later"))
    happened()
    work_off()
    page = client_for(alice).get(CHANNELS).content.decode()
    assert "last message not delivered" in page and "The server failed (HTTP 503). It said: later" in page
    assert "Tried again at" in page


def test_tests_are_limited_in_a_minute(
    client_for: Callable[..., Client], alice: User, make_channel: Callable[..., Channel], monkeypatch: Any
) -> None:
    monkeypatch.setattr("webapp.people.notifications.views.probe_allowed", lambda user: False)
    assert client_for(alice).post(f"{CHANNELS}{make_channel().pk}/test/").status_code == 429


def test_a_project_has_at_most_twenty_channels(
    client_for: Callable[..., Client], alice: User, service: Service, project: Project
) -> None:
    Channel.objects.bulk_create(
        [Channel(project=project, name=f"c{n}", kind="slack", host="h", events=EVENTS) for n in range(19)]
    )
    assert client_for(alice).post(CHANNELS, form(service)).status_code == 302
    answer = client_for(alice).post(CHANNELS, form(service))
    assert answer.status_code == 422 and "The project has 20 channels" in answer.content.decode()
