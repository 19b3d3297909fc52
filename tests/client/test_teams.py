"""``tiltyard team`` and ``tiltyard person``: deleting for good, by name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.conftest import Tool, answered, logged_in, refused
from webapp.people.teams.models import Membership, Project, Role, Team, User

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def owner(home: Any, live_server: Any, alice: User, project: Project) -> Tool:
    """The command of an owner who administrates the site, too."""
    User.objects.filter(pk=alice.pk).update(is_superuser=True, is_staff=True)
    return logged_in(live_server.url, alice, "owner")


def test_a_team_is_deleted_by_its_name_or_by_its_id_where_two_have_it(
    owner: Tool, project: Project, alice: User
) -> None:
    team = project.team
    assert [row["id"] for row in answered(owner("team", "list", "--json"))] == [str(team.pk)]
    refused(owner("team", "delete", team.name), "--yes", 2)
    refused(owner("team", "delete", "nothing", "--yes"), "There is no nothing here.")
    twin = Team.objects.create(name=team.name)
    Membership.objects.create(team=twin, user=alice, role=Role.OWNER)
    refused(owner("team", "delete", team.name, "--yes"), "Several are called")
    assert owner("team", "delete", str(team.pk), "--yes").stdout == f"{team.name} was deleted.\n"
    assert list(Team.objects.all()) == [twin] and not Project.objects.exists()


def test_a_person_is_deleted_by_their_name(owner: Tool, bob: User, rita: User) -> None:
    assert "bob" in owner("person", "list").stdout
    refused(owner("person", "delete", "bo", "--yes"), "There is no bo here.")
    assert answered(owner("person", "delete", "bob", "--yes", "--json")) == {"deleted": "bob"}
    refused(owner("person", "delete", "bob", "--yes"), "There is no bob here.")
    assert set(User.objects.filter(deleted_at=None).values_list("username", flat=True)) == {"alice", "rita"}


def test_only_an_administrator_lists_and_deletes_people(owner: Tool, live_server: Any, bob: User, rita: User) -> None:
    tool = logged_in(live_server.url, bob)
    refused(tool("person", "delete", "rita", "--yes"), "Only an administrator of this installation may do that.")
    assert User.objects.filter(username="rita").exists()
