"""Whose an estimate of memory is: a project's, and while it is worked out, a person's."""

from __future__ import annotations

import pytest
from django.urls import reverse

from tests.webapp.launch.test_memory import Clients, asked, done, job
from webapp.launch.models import MemoryEstimate
from webapp.people.teams.models import Project, User

pytestmark = pytest.mark.django_db


@pytest.fixture
def second(project: Project) -> Project:
    """Another project of the same team."""
    return Project.objects.create(team=project.team, name="Second", slug="second")


def test_projects_share_nothing(project: Project, second: Project, bob: User, client_for: Clients) -> None:
    """A base may mean another folder there, and who reads the one need not read the other."""
    row = asked(project, bob, job())
    MemoryEstimate.objects.filter(pk=row.pk).update(state="done", answer={"terms": []})
    assert asked(second, bob, job()).pk != row.pk
    assert client_for(bob).get(reverse("run-memory-part", args=[second.slug, row.pk])).status_code == 404


def test_what_is_worked_out_for_one_person_is_not_taken_from_another(project: Project, bob: User, alice: User) -> None:
    first, hers = asked(project, bob, job()), asked(project, alice, job())
    assert first.pk != hers.pk
    asked(project, bob, job(lora_rank=8))
    hers.refresh_from_db()
    assert hers.state == "open"


def test_a_page_shows_no_table_of_another_project_while_it_waits(
    project: Project, second: Project, bob: User, client_for: Clients
) -> None:
    theirs, here = done(asked(project, bob, job())), done(asked(second, bob, job()))
    waiting = asked(second, bob, job(lora_rank=8))
    part = reverse("run-memory-part", args=[second.slug, waiting.pk])
    assert "data-old" in client_for(bob).get(part, {"shown": str(here.pk)}).content.decode()
    assert "data-old" not in client_for(bob).get(part, {"shown": str(theirs.pk)}).content.decode()
