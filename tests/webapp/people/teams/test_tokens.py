"""Tokens: made once and shown once, limited by role, project and time, ended at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from tests.markup import dense
from tests.webapp.people.teams.test_login import CHEAP
from webapp.people.teams.logins import token_hash
from webapp.people.teams.models import ApiToken, AuditEntry, Membership, Project, Role, User
from webapp.people.teams.tokens import MOST, machine_create, token_create, token_revoke
from webapp.runs.models import Run

PASSWORD = "correct horse battery staple"
FORM = {"name": "night-jobs", "role": "editor", "project": "", "days": "30"}
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fresh(settings: Any) -> None:
    settings.PASSWORD_HASHERS = CHEAP


def _text(user: User, name: str = "t", role: str = Role.OWNER, **options: Any) -> str:
    return token_create(user=user, name=name, role=role, **options)[1]


def _ask(text: str, path: str = "projects", method: str = "get", **more: Any) -> Any:
    headers = {"Authorization": f"Bearer {text}"}
    return getattr(Client(enforce_csrf_checks=True), method)(f"/api/v1/{path}", headers=headers, **more)


# --- The page ------------------------------------------------------------------------------------------------------
def test_a_token_is_made_after_a_confirmation_and_shown_once(client_for: Callable[..., Client], bob: User) -> None:
    client = client_for(bob, old=True)
    asked = client.post("/tokens/", FORM)
    assert asked["Location"] == "/confirm/?next=%2Ftokens%2F" and not ApiToken.objects.exists()
    client.post("/confirm/", {"password": PASSWORD, "next": "/tokens/"})
    made = client.post("/tokens/", FORM)
    assert made.status_code == 201 and "no-store" in made["Cache-Control"]
    text, token = made.context["text"], ApiToken.objects.get()
    assert text in made.content.decode() and text.startswith("tiltyard_") and len(text) > 40
    assert (token.token_hash, token.hint) == (token_hash(text), text[:12])
    assert timedelta(days=29) < token.expires_at - timezone.now() < timedelta(days=30)
    again = client.get("/tokens/").content.decode()
    assert text not in again and "night-jobs" in again and text[:12] in again
    assert AuditEntry.objects.filter(action="token_made", subject="night-jobs", username="bob").count() == 1
    assert client.post("/tokens/", FORM).status_code == 422  # the name is taken


@pytest.mark.parametrize("wrong", [{"name": ""}, {"name": "<b>"}, {"role": "king"}, {"days": "8"}, {"project": "x"}])
def test_a_form_that_cannot_be_read_makes_nothing(client_for: Callable[..., Client], bob: User, wrong: Any) -> None:
    client = client_for(bob)
    client.post("/confirm/", {"password": PASSWORD, "next": "/tokens/"})
    assert client.post("/tokens/", FORM | wrong).status_code == 422 and not ApiToken.objects.exists()


@pytest.mark.parametrize("page", ["/tokens/", "/p/joust/settings/machines/"])
def test_each_token_shows_until_when_it_is_valid(
    page: str, client_for: Callable[..., Client], alice: User, project: Project
) -> None:
    owner = alice
    if "machines" in page:
        what = {"name": "robot", "may": "viewer", "everywhere": False, "days": None}
        owner = machine_create(project=project, by=alice, **what)[0].user
    for name, days in (("past", -1), ("coming", 2), ("lasting", None)):
        token, _text = token_create(user=owner, name=name, role=Role.VIEWER)
        ApiToken.objects.filter(pk=token.pk).update(expires_at=days and timezone.now() + timedelta(days=days))
    rows = dense(client_for(alice).get(page).content.decode()).split("<tr>")
    cells = {name: next(row for row in rows if f"<strong>{name}</strong>" in row) for name in ("past", "coming")}
    date = f"{timezone.localtime() + timedelta(days=2):%Y-%m-%d}"
    assert ("expired" in cells["past"], "expired" in cells["coming"], date in cells["coming"]) == (True, False, True)
    assert "no limit" in next(row for row in rows if "<strong>lasting</strong>" in row)


def test_only_ones_own_tokens_are_listed_and_revoked(client_for: Callable[..., Client], bob: User, rita: User) -> None:
    text = _text(bob, name="bobs-own")
    token = ApiToken.objects.get()
    assert "bobs-own" not in client_for(rita).get("/tokens/").content.decode()
    assert client_for(rita).post(f"/tokens/{token.pk}/revoke/").status_code == 404 and _ask(text).status_code == 200
    for _twice in range(2):
        assert client_for(bob).post(f"/tokens/{token.pk}/revoke/")["Location"] == "/tokens/"
    assert _ask(text).status_code == 401
    assert AuditEntry.objects.filter(action="token_revoked").count() == 1
    assert client_for(bob).get(f"/tokens/{token.pk}/revoke/").status_code == 405
    assert client_for(None).get("/tokens/").status_code == 302


def test_there_is_an_end_to_tokens(bob: User, charlie: User, project: Project) -> None:
    for number in range(MOST):
        _text(bob, name=f"t{number}")
    with pytest.raises(ValidationError, match="50"):
        _text(bob, name="one-more")
    with pytest.raises(ValidationError):
        _text(charlie, project=project)


# --- What it opens -------------------------------------------------------------------------------------------------
def test_a_token_acts_as_its_person_without_a_cookie(bob: User, project: Project) -> None:
    text = _text(bob, role=Role.EDITOR)
    assert [item["slug"] for item in _ask(text).json()["items"]] == [project.slug]
    made = _ask(
        text,
        f"projects/{project.slug}/runs",
        "post",
        data={"name": "from-a-script", "launch": False},
        content_type="application/json",
    )
    assert made.status_code == 201 and Run.objects.get().created_by == bob
    assert _ask(text, "me").json() == {
        "username": "bob",
        "token": {"name": "t", "role": "editor", "scope": None, "project": None, "expires_at": None},
    }


def test_a_token_never_exceeds_its_person_nor_its_role(
    alice: User, rita: User, project: Project, make_run: Any
) -> None:
    run = make_run()
    reading, owning = _text(alice, role=Role.VIEWER), _text(rita, role=Role.OWNER)
    for text in (reading, owning):
        assert _ask(text, f"runs/{run.pk}").status_code == 200
        assert _ask(text, f"runs/{run.pk}/stop", "post").status_code == 403
        assert _ask(text, f"runs/{run.pk}", "delete").status_code == 403
    Membership.objects.filter(user=rita).delete()
    assert _ask(owning, f"runs/{run.pk}").status_code == 404


def test_a_token_of_a_project_sees_no_other(alice: User, team: Any, project: Project, make_run: Any) -> None:
    other = Project.objects.create(team=team, name="Other", slug="other")
    run, text = make_run(), _text(alice, project=other)
    assert [item["slug"] for item in _ask(text).json()["items"]] == ["other"]
    assert _ask(text, "projects/other").status_code == 200
    assert _ask(text, f"projects/{project.slug}").status_code == _ask(text, f"runs/{run.pk}").status_code == 404


def test_what_ends_a_token(bob: User, project: Project) -> None:
    text = _text(bob, days=7)
    assert _ask(text).status_code == 200
    with time_machine.travel(timezone.now() + timedelta(days=8)):
        assert _ask(text).status_code == 401
    User.objects.filter(pk=bob.pk).update(is_active=False)
    assert _ask(text).status_code == 401
    User.objects.filter(pk=bob.pk).update(is_active=True)
    token_revoke(ApiToken.objects.get())
    assert _ask(text).status_code == 401
    gone = _text(bob, name="gone", project=project)
    Project.objects.filter(pk=project.pk).update(removed_at=timezone.now())
    assert _ask(gone).status_code == 401


@pytest.mark.parametrize("text", ["", "x", "tiltyard_", "tiltyard_x", "tiltyard_" + "a" * 5000, "\x00", "é"])
def test_what_is_no_token_is_a_401(text: str, db: None) -> None:
    answer = _ask(text)
    assert answer.status_code == 401 and answer.json()["code"] == "login_required"


def test_the_last_use_is_known_to_the_minute(bob: User) -> None:
    text, now = _text(bob), timezone.now()
    for seconds, expected in ((0, 0), (30, 0), (61, 61)):
        with time_machine.travel(now + timedelta(seconds=seconds), tick=False):
            assert _ask(text).status_code == 200
        assert round((ApiToken.objects.get().used_at - now).total_seconds()) == expected


def test_a_token_opens_no_page(bob: User) -> None:
    headers = {"Authorization": f"Bearer {_text(bob)}"}
    assert Client().get("/tokens/", headers=headers)["Location"].startswith("/login/")
