"""Links that share a comparison: made once, shown once, counted, ended."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
import time_machine
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from webapp.evaluation.sharing.models import SavedComparison, SharedLink
from webapp.evaluation.sharing.services import (
    DAYS,
    MOST_LINKS,
    link_create,
    link_lines,
    link_revoke,
    links_of,
    links_open,
    saved_lines,
)
from webapp.evaluation.sharing.views import LinkForm
from webapp.people.teams.logins import token_hash
from webapp.people.teams.models import AuditEntry, Membership, Project, Role, User
from webapp.runs.removal.services import remove

pytestmark = pytest.mark.django_db


def _links(project: Project, saved: SavedComparison) -> str:
    return reverse("compare-links", args=[project.slug, saved.pk])


def test_a_link_is_shown_once_and_only_its_hash_is_kept(
    client_for: Callable[..., Client], bob: User, project: Project, saved: SavedComparison
) -> None:
    client = client_for(bob)
    made = client.post(_links(project, saved), {"days": "30"})
    assert made.status_code == 201 and "no-store" in made["Cache-Control"]
    url, link = made.context["address"], SharedLink.objects.get()
    assert url.startswith("http://testserver/s/") and url.endswith("/") and url in made.content.decode()
    secret = url.split("/s/")[1].rstrip("/")
    assert len(secret) == 43, "32 random bytes"
    assert (link.secret_hash, link.hint, link.created_by) == (token_hash(secret), secret[:4], bob)
    assert timedelta(days=29) < link.expires_at - timezone.now() < timedelta(days=30)
    stored = [str(value) for value in SharedLink.objects.values_list().get()]
    assert not any(secret in value for value in stored)
    again = client.get(_links(project, saved)).content.decode()
    assert secret not in again and f"/s/{secret[:4]}…" in again and "0 times" in again
    row = AuditEntry.objects.get(action="comparison_shared")
    assert (row.username, row.subject) == ("bob", "week 47") and secret not in f"{row.subject}{row.object_id}"
    assert Client().get(url.removeprefix("http://testserver")).status_code == 200


def test_the_form_offers_what_the_service_takes() -> None:
    offered = [option.data["value"] for option in LinkForm()["days"].subwidgets]
    assert offered == list(DAYS) == [1, 7, 30, 90]


@pytest.mark.parametrize("days", ["", "0", "2", "365", "-1", "none"])
def test_a_link_without_an_end_is_not_made(
    client_for: Callable[..., Client], bob: User, project: Project, saved: SavedComparison, days: str
) -> None:
    assert client_for(bob).post(_links(project, saved), {"days": days}).status_code == 422
    assert not SharedLink.objects.exists()
    with pytest.raises(ValidationError, match="one of these numbers of days: 1, 7, 30, 90"):
        link_create(saved=saved, user=bob, days=int(days) if days.lstrip("-").isdigit() else 0)


def test_who_reads_sees_the_list_and_makes_none(
    client_for: Callable[..., Client], bob: User, rita: User, charlie: User, project: Project, saved: SavedComparison
) -> None:
    link_create(saved=saved, user=bob, days=7)
    page = client_for(rita).get(_links(project, saved)).content.decode()
    assert "bob" in page and "Make a link" not in page and "Revoke" not in page
    assert client_for(rita).post(_links(project, saved), {"days": "7"}).status_code == 403
    assert client_for(charlie).get(_links(project, saved)).status_code == 404
    assert client_for(None).get(_links(project, saved))["Location"].startswith("/login/")


def test_its_maker_and_owners_revoke_it_once(
    client_for: Callable[..., Client], alice: User, bob: User, project: Project, saved: SavedComparison
) -> None:
    hers, her_secret = link_create(saved=saved, user=alice, days=7)
    his, secret = link_create(saved=saved, user=bob, days=7)
    revoke = reverse("compare-link-revoke", args=[project.slug, hers.pk])
    assert client_for(bob).post(revoke).status_code == 403 and client_for(bob).get(revoke).status_code == 405
    assert Client().get(f"/s/{her_secret}/").status_code == 200
    page = client_for(bob).get(_links(project, saved)).content.decode()
    assert page.count("Revoke</button>") == 1, "bob is offered to revoke what is not his"
    for _twice in range(2):
        address = reverse("compare-link-revoke", args=[project.slug, his.pk])
        assert client_for(alice).post(address)["Location"] == _links(project, saved)
    assert AuditEntry.objects.filter(action="share_revoked", username="alice").count() == 1
    assert Client().get(f"/s/{secret}/").status_code == 404 and Client().get(f"/s/{her_secret}/").status_code == 200
    assert "revoked" in client_for(bob).get(_links(project, saved)).content.decode()


def test_openings_are_counted(
    client_for: Callable[..., Client], bob: User, project: Project, saved: SavedComparison
) -> None:
    link, secret = link_create(saved=saved, user=bob, days=7)
    other, _secret = link_create(saved=saved, user=bob, days=7)
    for _n in range(2):
        Client().get(f"/s/{secret}/")
    Client().head(f"/s/{secret}/")
    Client().get(f"/s/{secret}/report.html")
    link.refresh_from_db()
    assert link.opened == 3 and link.opened_at is not None, "a HEAD is a preview, the rest was read"
    other.refresh_from_db()
    assert (other.opened, other.opened_at) == (0, None)
    assert "3 times" in client_for(bob).get(_links(project, saved)).content.decode()


def test_a_link_ends_with_its_time(
    client_for: Callable[..., Client], bob: User, project: Project, saved: SavedComparison
) -> None:
    _link, secret = link_create(saved=saved, user=bob, days=1)
    with time_machine.travel(timezone.now() + timedelta(hours=23, minutes=59)):
        assert Client().get(f"/s/{secret}/").status_code == 200
    with time_machine.travel(timezone.now() + timedelta(hours=24, minutes=1)):
        assert Client().get(f"/s/{secret}/").status_code == 404
        assert "expired" in client_for(bob).get(_links(project, saved)).content.decode()


def test_a_link_shows_no_more_than_its_maker_may_see(
    client_for: Callable[..., Client], alice: User, bob: User, project: Project, saved: SavedComparison
) -> None:
    _link, secret = link_create(saved=saved, user=bob, days=7)
    member = Membership.objects.get(user=bob)

    def opens() -> bool:
        return Client().get(f"/s/{secret}/").status_code == 200

    assert opens()
    Membership.objects.filter(pk=member.pk).update(role=Role.VIEWER)
    assert not opens() and "closed" in client_for(alice).get(_links(project, saved)).content.decode()
    Membership.objects.filter(pk=member.pk).update(role=Role.EDITOR)
    User.objects.filter(pk=bob.pk).update(is_active=False)
    assert not opens()
    User.objects.filter(pk=bob.pk).update(is_active=True)
    assert opens()
    member.delete()
    assert not opens()


def test_a_link_ends_with_its_comparison_and_its_project(
    client_for: Callable[..., Client], bob: User, project: Project, saved: SavedComparison
) -> None:
    _link, secret = link_create(saved=saved, user=bob, days=7)
    remove(project)
    assert Client().get(f"/s/{secret}/").status_code == 404
    saved.delete()
    assert not SharedLink.objects.exists() and Client().get(f"/s/{secret}/").status_code == 404


def test_there_is_an_end_to_links(bob: User, project: Project, saved: SavedComparison) -> None:
    for _n in range(MOST_LINKS):
        link, _secret = link_create(saved=saved, user=bob, days=1)
    with pytest.raises(ValidationError, match="This comparison has 50 links"):
        link_create(saved=saved, user=bob, days=1)
    other = SavedComparison.objects.create(project=project, name="other", contestants=[])
    link_create(saved=other, user=bob, days=1)
    link_revoke(link)
    link, _secret = link_create(saved=saved, user=bob, days=1)
    assert link.open_at(link.expires_at - timedelta(seconds=1)) and not link.open_at(link.expires_at)
    SharedLink.objects.filter(pk=link.pk).update(expires_at=timezone.now())
    last, _secret = link_create(saved=saved, user=bob, days=1)
    assert (links_open(saved), links_open(other)) == (MOST_LINKS, 1)
    assert [(line.saved.name, line.links) for line in saved_lines(project)] == [("other", 1), ("week 47", MOST_LINKS)]
    assert [line.state for line in link_lines(links_of(saved))][:3] == ["open", "expired", "revoked"]
    assert links_of(saved)[0] == last and links_of(saved).count() == MOST_LINKS + 2
