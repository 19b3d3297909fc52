"""Home, project pages, team settings: who may see and do what."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.markup import dense
from webapp.datasets.models import Dataset, DatasetState
from webapp.people.teams.models import DEMO, LoginLink, Membership, Project, Role, Team, User
from webapp.site.home import DEMO_TAKES

Clients = Callable[..., Client]
pytestmark = pytest.mark.django_db


def _settings(project: Project) -> str:
    return reverse("team-settings", args=[project.slug])


@pytest.mark.parametrize("name", ["project-page", "team-settings", "run-list"])
def test_members_read_strangers_find_nothing_visitors_log_in(
    name: str, client_for: Clients, project: Project, alice: User, bob: User, rita: User, charlie: User
) -> None:
    url = reverse(name, args=[project.slug])
    for user in (alice, bob, rita):
        assert client_for(user).get(url).status_code == 200
    assert client_for(charlie).get(url).status_code == 404
    assert client_for(None).get(url).headers["Location"].startswith("/login/?next=")
    assert client_for(alice).post(url).status_code == 405


def test_home_goes_straight_to_the_only_project(client_for: Clients, project: Project, alice: User) -> None:
    client = client_for(alice)
    assert client.get("/").headers["Location"] == f"/p/{project.slug}/"
    assert client.get("/?all=1").status_code == 200
    Project.objects.create(team=project.team, name="Second", slug="second")
    page = client.get("/").content.decode()
    assert "Joust" in page and "Second" in page


def test_home_shows_a_person_without_a_team_what_to_do(client_for: Clients, db: None) -> None:
    lonely = User.objects.create_user("lonely")
    page = client_for(lonely).get("/").content.decode()
    assert "lonely" in page and "Settings" in page
    assert client_for(lonely).get(reverse("project-new")).status_code == 403


def test_an_owner_starts_a_project(client_for: Clients, project: Project, alice: User, bob: User) -> None:
    data = {"name": "工具 Tools", "team": project.team.pk}
    assert client_for(bob).post(reverse("project-new"), data).status_code == 403
    answer = client_for(alice).post(reverse("project-new"), data)
    made = Project.objects.get(name="工具 Tools")
    assert answer.headers["Location"] == f"/p/{made.slug}/"
    assert client_for(alice).post(reverse("project-new"), data).headers["Location"] != answer.headers["Location"]
    assert client_for(alice).post(reverse("project-new"), {"name": "<x>", "team": project.team.pk}).status_code == 422


def test_a_project_cannot_be_put_into_another_team(client_for: Clients, alice: User, charlie: User) -> None:
    other = Team.objects.get(name="Strangers")
    answer = client_for(alice).post(reverse("project-new"), {"name": "Mine", "team": other.pk})
    assert answer.status_code == 422
    assert not Project.objects.filter(name="Mine").exists()


def test_an_owner_adds_someone_who_has_an_account(
    client_for: Clients, project: Project, alice: User, charlie: User
) -> None:
    url = reverse("member-new", args=[project.slug])
    assert client_for(alice).post(url, {"username": "Charlie", "role": "viewer"}).status_code == 302
    assert Membership.objects.get(team=project.team, user=charlie).role == Role.VIEWER
    assert not LoginLink.objects.filter(user=charlie).exists()
    assert client_for(alice).post(url, {"username": "charlie", "role": "viewer"}).status_code == 422


def test_a_new_colleague_gets_a_link_that_is_shown_once(client_for: Clients, project: Project, alice: User) -> None:
    page = client_for(alice).post(reverse("member-new", args=[project.slug]), {"username": "dora", "role": "editor"})
    text = page.content.decode()
    start = text.index("http://testserver/login/")
    token = text[start:].split("/login/")[1].split("/")[0]
    assert not LoginLink.objects.filter(token_hash=token).exists()
    assert token not in client_for(alice).get(_settings(project)).content.decode()
    fresh = Client()
    assert fresh.get(f"/login/{token}/").status_code == 200
    assert fresh.post(f"/login/{token}/").headers["Location"] == reverse("set-password")
    assert fresh.get(f"/p/{project.slug}/").status_code == 200


@pytest.mark.parametrize(
    "bad",
    [{"username": "", "role": "viewer"}, {"username": "a b", "role": "viewer"}, {"username": "ok", "role": "king"}],
)
def test_bad_members_are_refused(bad: dict[str, str], client_for: Clients, project: Project, alice: User) -> None:
    assert client_for(alice).post(reverse("member-new", args=[project.slug]), bad).status_code == 422


@pytest.mark.parametrize("name", ["member-new", "member-role", "member-remove", "member-link", "member-active"])
def test_only_owners_manage_members(
    name: str, client_for: Clients, project: Project, alice: User, bob: User, rita: User, charlie: User
) -> None:
    member = Membership.objects.get(team=project.team, user=rita)
    url = reverse(name, args=[project.slug] + ([] if name == "member-new" else [member.pk]))
    data = {"username": "eve", "role": "owner"}
    assert client_for(bob).post(url, data).status_code == 403
    assert client_for(charlie).post(url, data).status_code == 404
    assert client_for(None).post(url, data).status_code == 302
    assert client_for(alice).get(url).status_code == 405
    assert client_for(alice, enforce_csrf_checks=True).post(url, data).status_code == 403
    member.refresh_from_db()
    assert member.role == Role.VIEWER


def test_the_last_owner_stays(client_for: Clients, project: Project, alice: User, bob: User) -> None:
    mine = Membership.objects.get(team=project.team, user=alice)
    client_for(alice).post(reverse("member-role", args=[project.slug, mine.pk]), {"role": "viewer"})
    client_for(alice).post(reverse("member-remove", args=[project.slug, mine.pk]))
    mine.refresh_from_db()
    assert mine.role == Role.OWNER
    his = Membership.objects.get(team=project.team, user=bob)
    client_for(alice).post(reverse("member-role", args=[project.slug, his.pk]), {"role": "owner"})
    answer = client_for(alice).post(reverse("member-remove", args=[project.slug, mine.pk]))
    assert answer.headers["Location"] == "/"
    assert not Membership.objects.filter(pk=mine.pk).exists()


def test_a_member_of_another_team_is_out_of_reach(
    client_for: Clients, project: Project, alice: User, charlie: User
) -> None:
    theirs = Membership.objects.get(user=charlie)
    for name in ("member-role", "member-remove", "member-link", "member-active"):
        assert (
            client_for(alice).post(reverse(name, args=[project.slug, theirs.pk]), {"role": "viewer"}).status_code == 404
        )


def test_a_login_link_never_opens_more_than_the_owner_owns(
    client_for: Clients, project: Project, alice: User, charlie: User
) -> None:
    new = User.objects.create_user("newcomer")
    member = Membership.objects.create(team=project.team, user=new, role=Role.EDITOR)
    url = reverse("member-link", args=[project.slug, member.pk])
    assert client_for(alice).post(url).status_code == 200
    Membership.objects.create(team=Team.objects.get(name="Strangers"), user=new, role=Role.OWNER)
    assert client_for(alice).post(url).status_code == 403
    known = Membership.objects.create(team=project.team, user=charlie, role=Role.VIEWER)  # has a password
    assert client_for(alice).post(reverse("member-link", args=[project.slug, known.pk])).status_code == 403


def test_an_owner_is_offered_links_only_for_those_whom_they_manage(
    client_for: Clients, project: Project, alice: User, bob: User, charlie: User
) -> None:
    Membership.objects.create(team=project.team, user=charlie, role=Role.VIEWER)  # owns another team
    page = client_for(alice).get(_settings(project)).content.decode()
    offered = {
        (user, name)
        for user in (alice, bob, charlie)
        for name in ("member-link", "member-active", "member-role", "member-remove")
        if f'"{reverse(name, args=[project.slug, Membership.objects.get(team=project.team, user=user).pk])}"' in page
    }
    always = {(user, name) for user in (alice, bob, charlie) for name in ("member-role", "member-remove")}
    assert offered == always | {(bob, "member-link"), (bob, "member-active")}


def test_empty_shelves_teach_the_next_click(client_for: Clients, project: Project, bob: User, rita: User) -> None:
    upload, shelves = reverse("dataset-new", args=[project.slug]), f"/p/{project.slug}/shelves/"
    page = client_for(bob).get(f"/p/{project.slug}/").content.decode()
    assert reverse("run-new", args=[project.slug]) in page and f'hx-get="{shelves}"' in page
    for part in ("true", ""):
        headers = {"HX-Request": part}
        assert upload in client_for(bob).get(shelves, headers=headers).content.decode()
        assert upload not in client_for(rita).get(shelves, headers=headers).content.decode()


def test_rows_that_are_not_counted_yet_are_not_0(client_for: Clients, project: Project, bob: User) -> None:
    Dataset.objects.create(project=project, name="new", state=DatasetState.CHECKING, file_name="new.jsonl")
    ready = Dataset.objects.create(
        project=project, name="old", state=DatasetState.READY, file_name="old.jsonl", rows=1200
    )
    page = client_for(bob).get(f"/p/{project.slug}/shelves/").content.decode()
    assert (
        page.count("checking</span>") == 1 and "1,200 rows" in page and "0 rows" not in page.replace("1,200 rows", "")
    )
    shelf = dense(client_for(bob).get(f"/p/{project.slug}/datasets/").content.decode())
    shown = re.findall(r'data-label="(Rows|Bad rows)">(.*?)</td>', shelf)
    assert sorted(shown) == [("Bad rows", "0"), ("Bad rows", "–"), ("Rows", "1,200"), ("Rows", "–")]
    Dataset.objects.create(project=project, name="old", version=2, state=DatasetState.CHECKING, file_name="old.jsonl")
    versions = client_for(bob).get(reverse("dataset-detail", args=[project.slug, ready.pk])).content.decode()
    assert re.findall(r'<td class="num">([^<]*)</td>', versions)[-2:] == ["–", "1,200"]


def test_a_demo_that_has_no_runs_yet_says_so_for_a_while(client_for: Clients, project: Project, bob: User) -> None:
    def shown() -> tuple[bool, bool]:
        page = client_for(bob).get(f"/p/{project.slug}/", headers={"HX-Request": "true"}).content.decode()
        assert 'hx-trigger="live-tick from:document"' in page, "the first run appears by itself"
        return "The demo is being prepared" in page, "Train something" in page

    assert shown() == (False, True)
    Project.objects.update(name=DEMO, created_at=timezone.now() - DEMO_TAKES + timedelta(seconds=20))
    assert shown() == (True, False)
    Project.objects.update(created_at=timezone.now() - DEMO_TAKES)
    assert shown() == (False, True)
