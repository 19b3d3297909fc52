"""The sessions of an environment that runs have reserved: on its page, and over the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.webapp.api.answers import complaints
from tests.webapp.runs.records.test_sessions import busy, line, world
from webapp.environments.models import Environment
from webapp.environments.selectors import Reservation, reservations_of
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

__all__ = ["busy", "line", "world"]
pytestmark = pytest.mark.django_db
Make = Callable[..., Any]
NOT_COUNTED = "Its sessions are not counted now: no server answers, or one does not say how many it holds."


def test_runs_at_work_have_reserved_sessions_of_all_servers(world: Make, busy: Make) -> None:
    tools, shop = world(10, 6), world(4)
    assert reservations_of(tools) == (16, 0, [], 0, 0)
    assert reservations_of(tools).title == "Runs have reserved none of its 16 sessions."
    one = busy({tools: 5}, name="one")
    assert reservations_of(tools).title == "1 run at work has reserved 5 of its 16 sessions."
    two = busy({tools: 4, shop: 9}, "train@b", name="two", state="stopping")
    for state in ("queued", "paused", "succeeded", "draft"):
        busy({tools: 3}, state=state, on_hold_at=timezone.now())
    busy({tools: 3}, imported=True)
    found = reservations_of(tools)
    assert found == (16, 9, [Reservation(one.pk, "one", 5), Reservation(two.pk, "two", 4)], 0, 0)
    assert found.title == "2 runs at work have reserved 9 of its 16 sessions."
    assert reservations_of(shop) == (4, 4, [(two.pk, "two", 4)], 0, 0), "it takes all, and no more than there are"


def test_queued_runs_that_need_more_than_are_free_wait(world: Make, busy: Make, line: Make) -> None:
    tools, shop = world(16), world(16)
    busy({tools: 9})
    first = line(1, {tools: 7})
    reserved = "1 run at work has reserved 9 of its 16 sessions."
    assert reservations_of(tools).title == f"{reserved} 1 queued run plays in it."
    line(1, {tools: 7})
    assert reservations_of(tools).title == f"{reserved} 2 queued runs play in it."
    line(1, {tools: 8})
    line(1, {tools: 100}, pool="endpoint")
    line(1, {tools: 8}, on_hold_at=timezone.now())
    line(1, {tools: 8}, after=first)
    line(1, {shop: 8})
    assert reservations_of(tools)[3:] == (4, 2)
    assert (
        reservations_of(tools).title == f"{reserved} 4 queued runs play in it; too few sessions are free for 2 of them."
    )
    Run.objects.exclude(after=None).delete()
    Run.objects.filter(sessions__endswith="/7").delete()
    Run.objects.filter(pool="endpoint").delete()
    assert reservations_of(tools).title == f"{reserved} 1 queued run plays in it; too few sessions are free for it."


@pytest.mark.parametrize("slots", [(), (16, None)])
def test_without_every_servers_word_nothing_waits(slots: tuple[Any, ...], world: Make, busy: Make, line: Make) -> None:
    tools = world(*slots)
    run = busy({tools: 99}, name="one")
    line(1, {tools: 99})
    found = reservations_of(tools)
    assert found == (None, 99, [(run.pk, "one", 99)], 1, 0)
    assert found.title == f"{NOT_COUNTED} 1 queued run plays in it."


def test_the_page_and_the_api_show_them(
    world: Make, busy: Make, line: Make, rita: User, charlie: User, client_for: Callable[..., Client]
) -> None:
    tools = world(16)
    run = busy({tools: 9}, name="night-<1>")
    line(1, {tools: 8})
    title = (
        "1 run at work has reserved 9 of its 16 sessions. 1 queued run plays in it; too few sessions are free for it."
    )
    page, part = f"/p/joust/environments/{tools.pk}/", {"HX-Request": "true"}
    for text in (client_for(rita).get(page, headers=each).content.decode() for each in ({}, part)):
        assert f"<p>{title}</p>" in text and "night-&lt;1&gt;" in text and "9 sessions" in text
        assert f'href="/p/joust/runs/{run.pk}/"' in text and 'href="/p/joust/runs/?state=queued"' in text
    path = f"/api/v1/environments/{tools.pk}"
    answer = client_for(rita).get(path)
    assert complaints("GET", path, answer.status_code, answer.json()) == []
    runs = [{"run_id": str(run.pk), "run": "night-<1>", "sessions": 9}]
    expected = {"slots": 16, "sessions": 9, "runs": runs, "queued": 1, "waiting": 1, "title": title}
    assert answer.json()["reserved"] == expected
    assert client_for(charlie).get(page).status_code == client_for(charlie).get(path).status_code == 404


def test_a_run_of_another_project_is_neither_named_nor_counted(
    world: Make, busy: Make, line: Make, charlie: User
) -> None:
    """No launch writes such a row; who sees the environment need not see the run."""
    tools: Environment = world(16)
    elsewhere = Project.objects.get(slug="elsewhere")
    busy({tools: 9}, project=elsewhere)
    line(1, {tools: 9}, project=elsewhere)
    assert reservations_of(tools) == (16, 0, [], 0, 0)
