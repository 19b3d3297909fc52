"""What happened since a person was there: visits, counts, what is listed, and the overview that shows it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
import time_machine
from django.db import DatabaseError
from django.test import Client
from django.urls import reverse

from tests.growth import assert_few_queries
from tests.markup import dense
from webapp.people.notifications import selectors
from webapp.people.notifications.events import notify
from webapp.people.notifications.models import Event, Kind, Visit
from webapp.people.notifications.selectors import news_of
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
ClientFor = Callable[..., Client]


@pytest.fixture(autouse=True)
def _asked(sent: list[str]) -> None:
    """No message reaches a real worker."""


def happened(run: Run, kind: Kind, at: datetime, **fields: Any) -> Event:
    event = notify(kind, run, key=f"{kind} {at} {run.pk}", **fields)
    Event.objects.filter(pk=event.pk).update(created_at=at)
    return event


def at(moment: datetime) -> Any:
    return time_machine.travel(moment, tick=False)


def test_at_first_the_news_are_of_the_last_day(project: Project, rita: User, make_run: Callable[..., Run]) -> None:
    run = make_run(name="night")
    happened(run, Kind.RUN_FAILED, NOON - timedelta(days=1))
    happened(run, Kind.RUN_SUCCEEDED, NOON - timedelta(days=1) + timedelta(seconds=1))
    with at(NOON):
        found = news_of(rita, project)
    assert (found.first, found.since, found.counts, found.total) == (
        True,
        NOON - timedelta(days=1),
        ["1 run succeeded"],
        1,
    )


def test_a_visit_ends_after_half_an_hour_without_the_page(project: Project, rita: User) -> None:
    looks = [0, 20, 50, 81, 81.5, 112.5]  # minutes
    since = []
    for minutes in looks:
        with at(NOON + timedelta(minutes=minutes)):
            found = news_of(rita, project)
            since.append(None if found.first else (found.since - NOON) / timedelta(minutes=1))
    assert since == [None, None, None, 50, 50, 81]  # the look at 81.5 is too soon after the one before to be written


def test_a_look_one_minute_after_another_is_not_written_and_one_later_is(project: Project, rita: User) -> None:
    for seconds, written in ((0, 0), (60, 0), (60.1, 60.1)):
        with at(NOON + timedelta(seconds=seconds)):
            news_of(rita, project)
        assert Visit.objects.get().last_at == NOON + timedelta(seconds=written)


def test_of_one_moment_events_keep_their_order(project: Project, rita: User, make_run: Callable[..., Run]) -> None:
    for number in range(9):
        happened(make_run(name=f"run {number}"), Kind.RUN_FAILED, NOON)
    with at(NOON + timedelta(minutes=1)):
        shown = [[item.event.pk for item in news_of(rita, project).items] for _look in range(2)]
    assert shown[0] == shown[1] == sorted(Event.objects.values_list("pk", flat=True))[:6]


def test_news_are_counted_by_kind_and_what_broke_comes_first(
    project: Project, rita: User, make_run: Callable[..., Run]
) -> None:
    run = make_run(name="night")
    kinds = [Kind.RUN_SUCCEEDED, Kind.RUN_FAILED, Kind.RUN_SUCCEEDED, Kind.EVALUATION_READY, Kind.RUN_ADVISORY]
    for number, kind in enumerate(kinds):
        happened(run, kind, NOON - timedelta(minutes=number))
    with at(NOON):
        found = news_of(rita, project)
    assert found.counts == ["1 run failed", "1 advisory", "2 runs succeeded", "1 evaluation is ready"]
    assert [item.event.kind for item in found.items] == kinds


def test_the_newest_are_listed_and_many_are_counted_up_to_a_bound(
    project: Project, rita: User, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(name="night")
    for number in range(7):
        happened(run, Kind.RUN_PAUSED, NOON - timedelta(minutes=number))
    with at(NOON):
        found = news_of(rita, project)
        assert (len(found.items), found.total, found.more) == (selectors.MOST_SHOWN, 7, False)
        monkeypatch.setattr(selectors, "MOST_NEWS", 7)
        assert (news_of(rita, project).total, news_of(rita, project).more) == (7, False)
        monkeypatch.setattr(selectors, "MOST_NEWS", 6)
        assert (news_of(rita, project).total, news_of(rita, project).more) == (6, True)


def test_events_of_others_and_of_other_projects_are_not_news(
    project: Project, rita: User, bob: User, make_run: Callable[..., Run]
) -> None:
    run = make_run(name="night")
    other = Project.objects.create(team=project.team, name="Other", slug="other")
    happened(run, Kind.VOTE_ASKED, NOON, people=[bob])
    happened(run, Kind.RUN_FAILED, NOON, project_id=other.pk)
    mine = happened(run, Kind.VOTE_ASKED, NOON - timedelta(hours=1), people=[bob, rita])
    with at(NOON):
        assert [item.event.pk for item in news_of(rita, project).items] == [mine.pk]
        assert news_of(bob, project).total == 2


def test_an_event_whose_run_was_deleted_leads_nowhere(
    project: Project, rita: User, make_run: Callable[..., Run]
) -> None:
    there, gone = make_run(name="there"), make_run(name="gone")
    happened(there, Kind.RUN_FAILED, NOON)
    happened(gone, Kind.RUN_FAILED, NOON - timedelta(minutes=1))
    gone.delete()
    with at(NOON):
        urls = [(item.event.subject, item.url) for item in news_of(rita, project).items]
    assert urls == [("there", reverse("run-detail", args=[project.slug, there.pk])), ("gone", "")]


def test_where_nothing_can_be_written_the_page_comes_all_the_same(
    project: Project, rita: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_fields: Any) -> None:
        raise DatabaseError("No space left on device")

    monkeypatch.setattr(Visit.objects, "update_or_create", full)
    assert news_of(rita, project).first and not Visit.objects.exists()


def test_the_overview_says_what_happened_and_what_is_at_work(
    project: Project, rita: User, client_for: ClientFor, make_run: Callable[..., Run]
) -> None:
    run = make_run(name="<b>夜</b>", state="failed")
    page = reverse("project-page", args=[project.slug])
    shown = unescape(dense(client_for(rita).get(page).content.decode()))
    assert "Nothing is at work." in shown and "In the last day" in shown and "Nothing happened." in shown
    error = {"code": "storage_full", "boundary": "storage", "message": "4 MB are left.", "hint": ""}
    notify(Kind.RUN_FAILED, run, key="1", facts={"error": error})
    for state, phase in (
        ("running", ""),
        ("preparing", ""),
        ("queued", ""),
        ("draft", "checking"),
        ("draft", ""),
        ("paused", ""),
    ):
        make_run(name=f"{state} {phase}", state=state, phase=phase)
    raw = client_for(rita).get(page).content.decode()
    shown = unescape(dense(raw))
    assert "2 runs at work" in shown and "2 wait" in shown and "1 is paused" in shown
    assert "1 run failed" in shown and "<b>夜" not in raw


def test_the_overview_asks_no_more_of_many_events(
    project: Project, rita: User, client_for: ClientFor, make_run: Callable[..., Run]
) -> None:
    def add(number: int) -> None:
        notify(Kind.RUN_FAILED, make_run(name=f"run {number}"), key=str(number))

    page = reverse("project-page", args=[project.slug])
    add(0)
    client_for(rita).get(page)
    assert_few_queries(client_for(rita), [page], lambda: [add(number) for number in range(1, 9)])


def test_the_latest_runs_leave_ended_evaluations_out_where_there_are_others(
    project: Project, rita: User, client_for: ClientFor, make_run: Callable[..., Run]
) -> None:
    def listed() -> list[str]:
        page = dense(client_for(rita).get(reverse("project-page", args=[project.slug])).content.decode())
        return re.findall(r'<span class="cell-name"><a href="[^"]*">([^<]*)</a>', page)

    make_run(name="ended", kind="evaluate", state="succeeded")
    assert listed() == ["ended"]
    make_run(name="trained", state="succeeded")
    make_run(name="plays", kind="evaluate", state="running")
    assert listed() == ["plays", "trained"]


def test_a_visit_is_of_one_project(project: Project, rita: User) -> None:
    other = Project.objects.create(team=project.team, name="Other", slug="other")
    with at(NOON):
        news_of(rita, project)
    with at(NOON + timedelta(hours=1)):
        assert news_of(rita, other).first
    assert sorted(Visit.objects.values_list("project__slug", "last_at")) == [
        ("joust", NOON),
        ("other", NOON + timedelta(hours=1)),
    ]
