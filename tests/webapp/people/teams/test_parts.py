"""The pages of a team and of the installation, drawn by themselves: who manages whom."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

from tests.markup import drawn, words

PEOPLE = {"link": "New login link", "active": "Deactivate"}


def _member(is_owner: bool = True, can_manage: bool = True, **user: Any) -> str:
    person = {"username": "bob", "is_active": True, "last_login": None, **user}
    member = {"pk": 5, "user": person, "role": "editor", "get_role_display": "Editor"}
    rows = [{"membership": member, "can_manage": can_manage, "is_you": user.get("is_you")}]
    roles = [("viewer", "Viewer"), ("editor", "Editor")]
    team = SimpleNamespace(slug="joust", name="Joust", team_id=uuid.UUID(int=1), team={"name": "Knights"})
    return drawn("teams/settings.html", project=team, is_owner=is_owner, members=rows, roles=roles, form={})


def test_only_owners_manage_the_members_of_a_team() -> None:
    page = _member(is_owner=False)
    assert "<form" not in page and "tokens/" not in page and "machines/" not in page and "/delete/" not in page
    assert "bob Editor never" in words(page) and "Add a member" not in page
    own = _member()
    assert 'value="editor" selected>' in own and own.count(" selected") == 1
    assert "New login link Deactivate Remove Remove bob from the team?" in words(own)
    assert "Add a member" in own and "Delete this team" in own and "Delete this project" in own


def test_a_member_who_cannot_be_managed_has_no_buttons_for_it() -> None:
    page = words(_member(can_manage=False))
    assert "never Remove Remove bob" in page and "Deactivate" not in page and "New login link" not in page


def test_a_member_who_was_deactivated_can_only_come_back() -> None:
    page = _member(is_active=False)
    assert "bob deactivated " in words(page) and "never Reactivate Remove" in words(page) and 'value="yes"' in page
    assert "deactivated" not in _member() and 'value="no"' in _member()
    assert "bob you " in words(_member(is_you=True)) and " you " not in words(_member())


def _site(one: dict[str, Any] | None = None, managed: bool = True, **context: Any) -> str:
    person = {"pk": uuid.UUID(int=2), "username": "bob", "is_active": True, "last_login": None, **(one or {})}

    class Shown(list[Any]):
        paginator = SimpleNamespace(count=9)
        has_previous = context.pop("has_previous", False)
        has_next = context.pop("has_next", False)
        previous_page_number, next_page_number = 1, 3

    page = SimpleNamespace(paginator=SimpleNamespace(count=0, num_pages=1))
    given = {"shown_people": Shown([person]), "managed": [person["pk"]] if managed else [], "page": page, "chosen": {}}
    return drawn("teams/site.html", **{**given, **context})


def test_an_administrator_manages_the_people_whom_they_may() -> None:
    assert "bob never New login link Deactivate Delete…" in words(_site())
    assert "bob never Custom rewards" in words(_site(managed=False))
    gone = _site({"is_active": False})
    assert "bob deactivated never Reactivate Delete…" in words(gone) and 'name="active" value="yes"' in gone
    assert 'name="active" value="no"' in _site() and "bob administrator never" in words(_site({"is_superuser": True}))


def test_people_come_in_pages() -> None:
    assert "?people=" not in _site()
    assert "?people=1" in _site(has_previous=True) and "?people=3" not in _site(has_previous=True)
    assert "?people=3" in _site(has_next=True) and "?people=1" not in _site(has_next=True)


def test_custom_rewards_are_switched_where_the_operator_allows_them() -> None:
    assert "The operator has not allowed it" in _site() and "custom-rewards/" not in _site()
    off, on = _site(allowed=True), _site(allowed=True, on=True)
    assert 'name="on" value="yes">Switch on<' in off and "Switch off" not in off and 'data-state="draft">off<' in off
    assert 'name="on" value="no">Switch off<' in on and "Switch on<" not in on and 'data-state="running">on<' in on


def test_the_audit_leads_to_what_is_still_there() -> None:
    entry = {"username": "bob", "subject": "x" * 20, "get_action_display": "deleted", "object_kind": ""}
    there = _site(lines=[(entry, "/there")], projects=["a", "b"], people=["bob"], chosen={"project": "b", "who": "bob"})
    assert f'<a href="/there">{"x" * 20}</a>' in there
    assert "<option selected>b</option>" in there and "<option selected>bob</option>" in there
    assert there.count(" selected") == 2
    gone = _site(lines=[({**entry, "object_kind": "run"}, "")])
    assert f'<span class="muted">{"x" * 20}</span>' in gone
    other = _site(lines=[(entry, "")])
    assert f'title="{"x" * 20}">{"x" * 12}</code>' in other
    assert "Nothing yet." in _site() and "Nothing yet." not in other
