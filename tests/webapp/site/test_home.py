"""The project's page and what is on top of every list: only what is the reader's own, and what is new."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client, RequestFactory

from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.pins.models import PinnedChart
from webapp.runs.removal.models import Removal
from webapp.runs.removal.services import TEAM
from webapp.site.home import _newest_runs
from webapp.site.tags import failed_deletions
from webapp.site.usage import Line, _headline

pytestmark = pytest.mark.django_db
ClientFor = Callable[..., Client]


def _deletions(user: User, project: Project | None = None, role: str = "owner") -> dict[str, Any]:
    request = RequestFactory().get("/here/")
    request.user = user
    if project is not None:
        project.role = role  # type: ignore[attr-defined]
    return failed_deletions({"request": request, "project": project})


def test_deletions_that_failed_are_shown_to_their_team_alone(
    alice: User, rita: User, charlie: User, project: Project
) -> None:
    for state in ("failed", "waiting", "done"):
        Removal.objects.create(team=project.team, name=state, state=state)
    for kind in ("run", TEAM):
        Removal.objects.create(name="of no team", state="failed" if kind != TEAM else "waiting", kind=kind)
    Removal.objects.create(team=project.team, name="Knights", state="waiting", kind=TEAM)
    shown = [_deletions(alice), _deletions(alice, project)]
    assert [[item.removal.name for item in found["failed"]] for found in shown] == [["failed"], ["failed"]]
    assert [[(team.name, team.left) for team in found["leaving"]] for found in shown] == [[("Knights", 1)]] * 2
    assert [item.mine for found in shown for item in found["failed"]] == [True, True]
    assert [item.mine for item in _deletions(rita)["failed"]] == [False]
    other = Project.objects.get(slug="elsewhere")
    assert [_deletions(charlie)[name] for name in ("failed", "leaving")] == [[], []]
    assert _deletions(alice, other)["failed"] == [] and shown[0]["back"] == "/here/"


def test_a_chart_is_taken_off_the_page_and_stays_with_its_run(
    bob: User, project: Project, make_run: Callable[..., Run], client_for: ClientFor
) -> None:
    pins = [PinnedChart.objects.create(project=project, run=make_run(), key=key, names=[key], view={}) for key in "ab"]
    assert client_for(bob).post(f"/p/joust/pins/{pins[0].pk}/remove/").status_code == 302
    assert list(PinnedChart.objects.values_list("key", flat=True)) == ["b"]


@pytest.mark.parametrize(("state", "again"), [(None, True), ("succeeded", False), ("running", True)])
def test_a_project_is_asked_for_again_while_something_may_come(
    state: str | None, again: bool, bob: User, project: Project, make_run: Callable[..., Run], client_for: ClientFor
) -> None:
    if state:
        make_run(state=state)
    assert client_for(bob).get("/p/joust/").context["refresh"] is again


def test_only_the_newest_runs_come_again(bob: User, project: Project, client_for: ClientFor) -> None:
    client = client_for(bob)
    assert "<html" in client.get("/p/joust/").content.decode()
    assert "<html" not in client.get("/p/joust/", headers={"HX-Request": "true"}).content.decode()


def test_ended_evaluations_are_shown_only_where_there_is_nothing_else(
    project: Project, make_run: Callable[..., Run]
) -> None:
    evaluation = make_run(kind="evaluate", state="succeeded")
    assert _newest_runs(project) == [evaluation.pk]
    again, trained = make_run(kind="evaluate", state="running"), make_run(kind="grpo", state="succeeded")
    assert _newest_runs(project) == [trained.pk, again.pk]


def _said(*lines: Line) -> str:
    hours = sum(line.hours for line in lines)
    return str(_headline(SimpleNamespace(days=30, device_hours=hours), lines))  # type: ignore[arg-type]


def test_the_use_of_devices_is_one_sentence_about_the_most() -> None:
    bob = Line("Joust", "bob", 6.0, 0.75, 0.0, 1)
    assert _said(Line("Joust", "bob", 0, None, 3.0, 1)) == "No run has used a device in the last 30 days."
    assert _said(bob) == "1 person used 6.0 device hours in the last 30 days, 75% of them for Joust."
    dana = Line("Elsewhere", "dana", 2.0, 0.25, 0.0, 1)
    assert _said(bob, dana).startswith("2 people used 8.0 device hours in the last 30 days; bob used 75% of them")
    gone = Line("Joust", "", 6.0, 0.75, 0.0, 1)
    assert "; a person who is gone used 75%" in _said(gone, dana)
