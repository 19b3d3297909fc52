"""Device hours by day, person and project: facts by value over planted attempts."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from webapp.people.teams.models import ApiToken, Project, Team, User
from webapp.people.teams.tokens import token_create
from webapp.runs.models import Attempt, Run
from webapp.runs.records.usage import USUAL, usage_of

pytestmark = pytest.mark.django_db
Made = Callable[..., Run]


@pytest.fixture
def now() -> datetime:
    """By the database's clock, which decides."""
    return timezone.now()


@pytest.fixture
def worked(make_run: Made) -> Made:
    """``worked((start, end), …, by=…)``: a run with these attempts; no end: its worker is still there."""

    def make(*times: tuple[datetime, datetime | None], by: User | None, **over: Any) -> Run:
        fields = {"state": "succeeded", "attempt": len(times), "pool": "train"} | over
        run = make_run(name=f"run-{Run.objects.count()}", created_by=by, **fields)
        for number, (start, end) in enumerate(times, 1):
            Attempt.objects.create(run=run, number=number, owner="w", started_at=start, ended_at=end)
        return run

    return make


def midnight(days_ago: int = 0) -> datetime:
    today = timezone.localtime().date() - timedelta(days=days_ago)
    return datetime(today.year, today.month, today.day, tzinfo=timezone.get_default_timezone())


def hours(user: User, days: int = USUAL) -> list[tuple[str, str, float, int]]:
    return [(line.person, line.pool, round(line.hours, 3), line.runs) for line in usage_of(user, days).sums]


def test_hours_are_cut_at_midnight_and_runs_are_counted_once(worked: Made, alice: User, bob: User) -> None:
    late = midnight(1)
    worked((late - timedelta(hours=2), late + timedelta(hours=3)), by=alice)
    worked(
        (late, late + timedelta(hours=1)),
        (late + timedelta(hours=2), late + timedelta(hours=2.5)),
        by=bob,
    )
    worked((late, late + timedelta(hours=4)), by=bob, pool="endpoint")
    usage = usage_of(alice)
    assert [(line.day, line.person, line.pool, line.hours, line.runs) for line in usage.items] == [
        ((late - timedelta(days=1)).date(), "alice", "train", 2.0, 1),
        (late.date(), "alice", "train", 3.0, 1),
        (late.date(), "bob", "endpoint", 4.0, 1),
        (late.date(), "bob", "train", 1.5, 1),
    ]
    assert hours(alice) == [("alice", "train", 5.0, 1), ("bob", "endpoint", 4.0, 1), ("bob", "train", 1.5, 1)]
    assert usage.device_hours == pytest.approx(6.5)
    assert dict(usage.by_day)[late.date()] == pytest.approx(4.5) and len(usage.by_day) == USUAL
    assert usage.by_day[0] == (timezone.localtime().date(), 0.0)


def test_an_hour_of_a_run_on_four_devices_is_four_device_hours(worked: Made, alice: User) -> None:
    worked((midnight(1), midnight(1) + timedelta(hours=1.5)), by=alice, devices=4)
    assert hours(alice) == [("alice", "train", 6.0, 1)]


def test_the_first_day_is_cut_and_what_was_before_is_not_there(worked: Made, alice: User) -> None:
    begin = midnight(6)
    worked((begin - timedelta(hours=5), begin + timedelta(hours=1)), by=alice)
    worked((begin - timedelta(hours=5), begin), by=alice)
    assert hours(alice, 7) == [("alice", "train", 1.0, 1)]
    assert hours(alice, 8)[0][2:] == (11.0, 2)


@pytest.mark.parametrize(
    ("state", "number", "counts"),
    [("running", 1, True), ("stopping", 1, True), ("running", 2, False), ("queued", 1, False), ("failed", 1, False)],
)
def test_an_attempt_without_an_end_counts_while_its_run_has_a_worker(
    state: str, number: int, counts: bool, worked: Made, alice: User, now: datetime
) -> None:
    run = worked((now - timedelta(hours=2), None), by=alice)
    Run.objects.filter(pk=run.pk).update(state=state, attempt=number)
    found = hours(alice)
    assert ([line[2] for line in found] == [pytest.approx(2.0, abs=0.1)]) is counts and bool(found) is counts


def test_imported_and_deleted_runs_and_reversed_times_are_left_out(worked: Made, alice: User, now: datetime) -> None:
    span = (now - timedelta(hours=1), now)
    worked(span, by=alice, imported=True)
    worked((now, now - timedelta(hours=1)), by=alice)
    gone = worked(span, by=alice)
    Run.objects.filter(pk=gone.pk).update(removed_at=now)
    assert hours(alice) == []


def test_members_see_their_projects_and_administrators_all(
    worked: Made, alice: User, rita: User, charlie: User, now: datetime
) -> None:
    span = (now - timedelta(hours=1), now)
    elsewhere = Project.objects.get(slug="elsewhere")
    worked(span, by=alice)
    worked(span, by=charlie, project=elsewhere)
    worked(span, by=None)
    root = User.objects.create_superuser("root")
    assert [line[0] for line in hours(rita)] == ["", "alice"] and [line[0] for line in hours(charlie)] == ["charlie"]
    assert [line[0] for line in hours(root)] == ["charlie", "", "alice"], "equal hours are by project, then by person"


def test_days_follow_the_sites_time_zone_with_days_of_23_hours(worked: Made, alice: User, settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    timezone.get_default_timezone.cache_clear()
    zone = ZoneInfo("Europe/Berlin")
    try:
        with time_machine.travel(datetime(2026, 3, 30, 12, tzinfo=UTC), tick=False), timezone.override(zone):
            worked(
                (datetime(2026, 3, 28, 12, tzinfo=zone), datetime(2026, 3, 30, 1, tzinfo=zone)), by=alice
            )  # the clocks go forward on the 29th
            found = {line.day: line.hours for line in usage_of(alice, 7).items}
    finally:
        settings.TIME_ZONE = "UTC"
        timezone.get_default_timezone.cache_clear()
    assert found == {date(2026, 3, 28): 12.0, date(2026, 3, 29): 23.0, date(2026, 3, 30): 1.0}


def test_the_page_says_it_in_one_sentence(
    worked: Made, alice: User, bob: User, client_for: Callable[..., Client], now: datetime
) -> None:
    client = client_for(alice)
    assert "No run has used a device in the last 30 days." in client.get("/usage/").content.decode()
    worked((now - timedelta(minutes=90), now - timedelta(minutes=30)), by=bob)
    page = client.get("/usage/?days=7").content.decode()
    assert "1 person used 1.0 device hours in the last 7 days, 100% of them for Joust." in page
    worked((now - timedelta(minutes=60), now - timedelta(minutes=45)), by=alice)
    page = client.get("/usage/?days=7").content.decode()
    assert "2 people used 1.2 device hours in the last 7 days; bob used 80% of them for Joust." in page
    assert "Hours of endpoints" not in page and 'aria-current="true"' in page
    worked((now - timedelta(minutes=60), now - timedelta(minutes=45)), by=alice, pool="endpoint")
    assert "Hours of endpoints" in client.get("/usage/").content.decode()


@pytest.mark.parametrize(("asked", "days"), [("1", 1), ("366", 366), ("367", 30), ("0", 30), ("-1", 30), ("x", 30)])
def test_days_that_cannot_be_are_the_usual_ones(
    asked: str, days: int, alice: User, client_for: Callable[..., Client]
) -> None:
    assert f"in the last {days} days." in client_for(alice).get(f"/usage/?days={asked}").content.decode()


def test_the_csv_has_a_line_for_each_day_and_no_formulas(
    worked: Made, alice: User, team: Team, client_for: Callable[..., Client]
) -> None:
    late = midnight(1)
    Project.objects.update(name="=cmd()")
    worked((late - timedelta(hours=1), late + timedelta(hours=2)), by=alice)
    answer = client_for(alice).get("/usage/usage.csv")
    text = b"".join(answer.streaming_content).decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["day"], row["project"], row["person"], float(row["hours"]), row["runs"]) for row in rows] == [
        (str((late - timedelta(days=1)).date()), "'=cmd()", "alice", 1.0, "1"),
        (str(late.date()), "'=cmd()", "alice", 2.0, "1"),
    ]


def test_the_api_has_the_same_and_a_projects_token_sees_that_project(
    worked: Made, alice: User, project: Project, elsewhere: Project, client_for: Callable[..., Client]
) -> None:
    other = Project.objects.create(team=project.team, name="Other", slug="other")
    late = midnight(1)
    worked((late, late + timedelta(hours=2)), by=alice)
    worked((late, late + timedelta(hours=1)), by=alice, project=other)
    found = client_for(alice).get("/api/v1/usage?days=7").json()
    assert [(item["day"], item["project"], item["person"], item["hours"]) for item in found["items"]] == [
        (str(late.date()), "Joust", "alice", 2.0),
        (str(late.date()), "Other", "alice", 1.0),
    ]
    assert found["days"] == 7 and client_for(alice).get("/api/v1/usage?days=367").status_code == 422
    _token, secret = token_create(user=alice, name="t", role="viewer", project=other)
    assert ApiToken.objects.get().project == other
    answer = Client().get("/api/v1/usage", headers={"Authorization": f"Bearer {secret}"}).json()
    assert [item["project"] for item in answer["items"]] == ["Other"]
    User.objects.filter(pk=alice.pk).update(is_superuser=True)
    worked((late, late + timedelta(hours=1)), by=None, project=elsewhere)
    _token, whole = token_create(user=alice, name="w", role="viewer")
    for text, projects in ((secret, {"Other"}), (whole, {"Elsewhere", "Joust", "Other"})):
        answer = Client().get("/api/v1/usage", headers={"Authorization": f"Bearer {text}"}).json()
        assert {item["project"] for item in answer["items"]} == projects


def test_two_projects_of_one_name_are_two_lines(
    worked: Made, alice: User, project: Project, client_for: Callable[..., Client]
) -> None:
    twin = Project.objects.create(team=project.team, name=project.name, slug="joust-2")
    late = midnight(1)
    worked((late, late + timedelta(hours=1)), by=alice)
    worked((late, late + timedelta(hours=3)), by=alice, project=twin)
    assert [(line.slug, line.hours) for line in usage_of(alice).sums] == [("joust-2", 3.0), ("joust", 1.0)]
    page = client_for(alice).get("/usage/").content.decode()
    assert "1 person used 4.0 device hours in the last 30 days, 75% of them for Joust." in page
    assert page.count('<td class="num" data-label="Runs">1</td>') == 2


def test_it_takes_three_queries_however_many_attempts(worked: Made, alice: User, now: datetime) -> None:
    for number in range(30):
        worked((now - timedelta(hours=number + 1), now - timedelta(hours=number)), by=alice)
    with CaptureQueriesContext(
        connection,
    ) as found:
        usage_of(alice)
    assert len(found) == 3
