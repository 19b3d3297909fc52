"""``tiltyard retention``: rules of retention, and what they free."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.client.conftest import Tool, answered, logged_in, refused
from webapp.people.teams.models import Project, User
from webapp.retention.rules import Rule, rules_of
from webapp.runs.removal.models import Kept, StoredSize

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def owner(home: Any, live_server: Any, alice: User, project: Project, make_run: Any) -> Tool:
    """The command of an owner, with a run that ended 40 days ago and left 3 MiB of logs."""
    run = make_run(state="succeeded", finished_at=timezone.now() - timedelta(days=40))
    StoredSize.objects.create(run=run, logs=3 * 2**20)
    return logged_in(live_server.url, alice, "owner")


def test_a_rule_is_previewed_confirmed_set_and_given_back(owner: Tool, project: Project) -> None:
    assert "No rule: what runs leave is kept until a person deletes it." in owner("retention", "show").stdout
    preview = answered(owner("retention", "set", "logs", "--days", "30", "--preview", "--json"))
    logs = next(kind for kind in preview["kinds"] if kind["kind"] == "logs")
    assert (logs["days"], logs["now_bytes"], logs["now_runs"], logs["later_bytes"]) == (30, 3 * 2**20, 1, 0)
    assert rules_of(project)[Kept.LOGS] == Rule()
    refused(owner("retention", "set", "logs", "--days", "30", input="y\n"), "--yes", 2)
    assert rules_of(project)[Kept.LOGS] == Rule()
    said = owner("retention", "set", "logs", "--days", "30", "--gib", "2", "--yes").stdout
    assert "The rules free 3.0\xa0MB of 1 run now" in said and "3.0 MiB" in said
    assert rules_of(project)[Kept.LOGS] == Rule(30, 2, own=True)
    answered(owner("retention", "reset", "logs", "--yes", "--json"))
    assert rules_of(project)[Kept.LOGS] == Rule()


def test_only_owners_set_rules(owner: Tool, live_server: Any, bob: User) -> None:
    tool = logged_in(live_server.url, bob)
    assert tool("retention", "show").exit_code == 0
    refused(tool("retention", "set", "logs", "--days", "3", "--yes"), "this needs owner")
