"""What a first start makes."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.core.management import call_command

from webapp.environments.models import Environment
from webapp.ops.management.commands.prepare_site import site_prepare
from webapp.people.teams.access import role_in
from webapp.people.teams.models import Project, Role, Team, User

pytestmark = pytest.mark.django_db


def test_a_first_start_makes_one_owner_without_a_password() -> None:
    user = site_prepare()
    assert (user.username, user.has_usable_password()) == ("admin", False)
    assert list(Team.objects.values_list("name", flat=True)) == ["My team"]
    assert role_in(user, Project.objects.filter(name="My project")[0]) == Role.OWNER


def test_the_next_start_changes_nothing() -> None:
    first = site_prepare(demo=True)
    Project.objects.filter(name="My project").update(name="Renamed")
    assert site_prepare(demo=True) == first
    assert sorted(Project.objects.values_list("name", flat=True)) == ["Demo", "Renamed"]
    assert (User.objects.count(), Team.objects.count()) == (1, 1)


def test_a_taken_slug_gets_a_number(team: Team) -> None:
    Project.objects.create(team=team, name="Other", slug="my-project")
    site_prepare()
    assert Project.objects.filter(name="My project", slug="my-project-2").exists()


def test_environments_follow_the_tools_server_to_a_new_port(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.DATABASES["default"]["OPTIONS"], "options", "")  # put back what the command changes
    Environment.objects.create(project=project, name="tools", url="http://127.0.0.1:8101")
    Environment.objects.create(project=project, name="mine", url="http://127.0.0.1:9000")
    call_command("prepare_site", "--tools-moved", "http://127.0.0.1:8101", "http://127.0.0.1:8222")
    assert sorted(Environment.objects.values_list("url", flat=True)) == [
        "http://127.0.0.1:8222",
        "http://127.0.0.1:9000",
    ]
