"""The rail: groups of pages, which one a page belongs to, and the newest saved views."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver

from tests.growth import queries_of
from webapp.people.teams.models import Project, Team, User
from webapp.reading.inspector.models import SavedView
from webapp.site.rail import NEWEST_VIEWS, RAIL, page_of, pages_for

FIND = "project-rollouts"
pytestmark = pytest.mark.django_db
ClientFor = Callable[..., Client]
LINK = re.compile(r'<a class="(rail-link|rail-page)" href="([^"]+)"(?: aria-current="(\w+)")?')


def links(client: Client, address: str) -> list[tuple[str, str, str]]:
    """The rail's links of a page: group or page, address, and how it is marked."""
    answer = client.get(address)
    assert answer.status_code == 200, address
    rail = re.search(r'<nav class="rail-nav".*?</nav>', answer.content.decode(), re.DOTALL)
    assert rail is not None
    return LINK.findall(rail[0])


def below(client: Client, address: str) -> list[tuple[str, str]]:
    """The links below the group of a page, and how each is marked."""
    return [(url, mark) for kind, url, mark in links(client, address) if kind == "rail-page"]


def view(project: Project, name: str, query: str = "outcome=failed", minutes: int = 0, **fields: Any) -> SavedView:
    """A saved view that was made so many minutes after the year began."""
    made = SavedView.objects.create(project=project, name=name, query=query, **fields)
    when = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    SavedView.objects.filter(pk=made.pk).update(created_at=when)
    return made


def test_nine_groups_in_order_and_only_the_own_one_is_open(
    alice: User, project: Project, client_for: ClientFor
) -> None:
    found = links(client_for(alice), "/p/joust/suites/")
    groups = [(url.removeprefix("/p/joust/"), mark) for kind, url, mark in found if kind == "rail-link"]
    assert groups == [
        ("", ""),
        ("runs/", ""),
        ("rollouts/", ""),
        ("suites/", "true"),
        ("datasets/", ""),
        ("rewards/", ""),
        ("models/", ""),
        ("environments/", ""),
        ("settings/", ""),
    ]
    assert [(url, mark) for kind, url, mark in found if kind == "rail-page"] == [
        ("/p/joust/suites/", "page"),
        ("/p/joust/compare/", ""),
        ("/p/joust/votes/", ""),
    ]
    assert [kind for kind, _url, _mark in found[3:7]] == ["rail-link", *["rail-page"] * 3]  # below its own heading


def test_a_group_of_one_page_has_no_links_below(alice: User, make_dataset: Any, client_for: ClientFor) -> None:
    dataset, client = make_dataset(), client_for(alice)
    for address, mark in (("/p/joust/datasets/", "page"), (f"/p/joust/datasets/{dataset.pk}/", "true")):
        found = links(client, address)
        assert [(url, mark) for _kind, url, mark in found if mark] == [("/p/joust/datasets/", mark)]
        assert {kind for kind, _url, _mark in found} == {"rail-link"}


def test_a_run_and_a_sweep_belong_to_the_pages_of_runs(alice: User, make_run: Any, client_for: ClientFor) -> None:
    run, client = make_run(), client_for(alice)
    assert below(client, f"/p/joust/runs/{run.pk}/") == [("/p/joust/runs/", "true"), ("/p/joust/sweeps/", "")]
    assert below(client, "/p/joust/sweeps/") == [("/p/joust/runs/", ""), ("/p/joust/sweeps/", "page")]


def test_a_page_below_a_link_marks_it_as_its_place(alice: User, project: Project, client_for: ClientFor) -> None:
    assert below(client_for(alice), "/p/joust/endpoints/new/") == [
        ("/p/joust/models/", ""),
        ("/p/joust/chats/", ""),
        ("/p/joust/endpoints/", "true"),
    ]


def test_owners_see_what_only_owners_may_open(
    alice: User, bob: User, rita: User, project: Project, client_for: ClientFor
) -> None:
    settings = "/p/joust/settings/"
    common = [(settings, "page"), *((settings + name, "") for name in ("doctor/", "retention/", "channels/"))]
    common += [("/workers/", ""), ("/usage/", "")]
    for user in (bob, rita):
        assert below(client_for(user), settings) == common
    owned = [(settings + "tokens/", ""), (settings + "machines/", "")]
    assert below(client_for(alice), settings) == [*common[:4], *owned, *common[4:]]


@pytest.mark.parametrize(("role", "owns"), [(None, False), ("viewer", False), ("editor", False), ("owner", True)])
def test_tokens_and_machines_are_pages_of_owners(role: str | None, owns: bool) -> None:
    read = Project(slug="joust")
    if role:
        read.role = role  # type: ignore[attr-defined]
    shown = {page.url_name for group in RAIL for page in pages_for(read, group)}
    assert ("team-tokens" in shown, "team-machines" in shown) == (owns, owns) and "run-list" in shown


def test_every_page_of_a_project_has_a_place() -> None:
    def names(patterns: list[Any], before: str = "") -> list[str]:
        found: list[str] = []
        for each in patterns:
            if isinstance(each, URLResolver):
                found += names(each.url_patterns, before + str(each.pattern))
            elif isinstance(each, URLPattern) and (before + str(each.pattern)).startswith("p/<slug:slug>/"):
                found.append(str(each.name))
        return found

    known = names(get_resolver().url_patterns)
    assert len(known) > 100 and [name for name in known if page_of(name) is None] == ["palette"]
    places = {"reward-custom": "reward-list", "lab-set": "lab", "vote": "vote-rounds", "rollout-detail": FIND}
    places |= {"run-rollouts": FIND, "run-rollouts-save": FIND, "branch-list": FIND, "project-delete": "team-settings"}
    assert {name: page.url_name for name in places if (page := page_of(name))} == places
    assert page_of("") is None and page_of("home") is None and page_of("projects") is None


def test_saved_views_are_listed_newest_first_and_at_most_five(
    alice: User, project: Project, make_run: Any, client_for: ClientFor, team: Team
) -> None:
    client, find = client_for(alice), "/p/joust/rollouts/"
    assert below(client, find) == [(find, "page")]
    views = [view(project, f"view {number}", minutes=number) for number in range(NEWEST_VIEWS)]
    other = Project.objects.create(team=team, name="Other", slug="other")
    view(other, "of another project", minutes=90)
    listed = [f"{find}views/{each.pk}/" for each in reversed(views)]
    assert [url for url, _mark in below(client, find)] == [find, *listed]
    newest = view(project, "调用失败的轨迹", minutes=99, run=make_run())
    assert [url for url, _mark in below(client, find)] == [find, f"{find}views/{newest.pk}/", *listed[:4]]
    assert "调用失败的轨迹" in client.get(find).content.decode()


def test_the_view_whose_filters_the_address_has_is_the_page(
    alice: User, project: Project, make_run: Any, client_for: ClientFor
) -> None:
    client, run, find = client_for(alice), make_run(), "/p/joust/rollouts/"
    whole, part = view(project, "whole"), view(project, "part", run=run, minutes=1)
    marks = [(find, ""), (f"{find}views/{part.pk}/", ""), (f"{find}views/{whole.pk}/", "page")]
    assert below(client, f"{find}?outcome=failed") == marks
    of_run = below(client, f"/p/joust/runs/{run.pk}/rollouts/?outcome=failed")
    assert [mark for _url, mark in of_run] == ["", "page", ""]
    assert [mark for _url, mark in below(client, f"{find}?outcome=solved")] == ["page", "", ""]


def test_only_pages_of_rollouts_read_saved_views(alice: User, project: Project, client_for: ClientFor) -> None:
    client = client_for(alice)
    for address, read in (
        ("/p/joust/", 0),
        ("/p/joust/runs/", 0),
        ("/p/joust/settings/", 0),
        ("/p/joust/rollouts/", 1),
    ):
        with CaptureQueriesContext(connection) as caught:
            client.get(address)
        assert sum("inspector_savedview" in each["sql"] for each in caught) == read, address
    before = queries_of(client, "/p/joust/rollouts/")
    for number in range(9):
        view(project, f"view {number}")
    assert queries_of(client, "/p/joust/rollouts/") == before


def test_a_name_of_a_view_is_text(alice: User, project: Project, client_for: ClientFor) -> None:
    view(project, "<b>ערב טוב</b>")
    page = client_for(alice).get("/p/joust/rollouts/").content.decode()
    assert '<span class="truncate" dir="auto">&lt;b&gt;ערב טוב&lt;/b&gt;</span>' in page and "<b>ערב" not in page
