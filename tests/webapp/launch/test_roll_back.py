"""A child that continues from a chosen checkpoint of its parent, with other options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.webapp.site.run_pages.test_resume_pages import _form_values, _saved, parent
from webapp.people.teams.models import User
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.states import RunState

__all__ = ["parent"]
Clients = Callable[..., Client]
pytestmark = pytest.mark.django_db


def asked(client: Client, run: Run, **query: Any) -> Any:
    return client.get(reverse("run-new", args=[run.project.slug]), {"resume": str(run.pk), **query})


def test_the_child_starts_from_the_checkpoint_that_was_chosen(
    client_for: Clients, parent: Run, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: False)
    earlier, client = _saved(parent, 2), client_for(bob)
    page = asked(client, parent, checkpoint=earlier.pk).content.decode()
    assert "continues from step 2 of" in page
    values = _form_values(page)
    assert values["run.max_steps"] == "5", "there is something left to do"
    sent = values | {"name": "again", "launch_anyway": "yes"}
    assert client.post(reverse("run-new", args=[parent.project.slug]), sent).status_code == 302
    child = Run.objects.get(name="again")
    assert (child.parent, child.resume_step, child.resume_checkpoint) == (parent, 2, earlier)


def test_half_the_learning_rate_is_half_of_what_was_learned_with(client_for: Clients, parent: Run, bob: User) -> None:
    values = _form_values(asked(client_for(bob), parent, change="slower").content.decode())
    assert float(values["optim.learning_rate"]) == 1e-5, "of the method's default, 2e-5"
    parent.config["optim"]["learning_rate"] = 0.004
    parent.save(update_fields=["config"])
    values = _form_values(asked(client_for(bob), parent, change="slower").content.decode())
    assert float(values["optim.learning_rate"]) == 0.002


def test_what_cannot_be_gone_back_to_is_not_found(
    client_for: Clients, parent: Run, make_run: Any, bob: User, charlie: User
) -> None:
    client, found = client_for(bob), _saved(parent, 2)
    others = _saved(make_run(name="other", state=RunState.SUCCEEDED, attempt=1), 2)
    for wrong in (others.pk, "x", parent.pk):
        assert asked(client, parent, checkpoint=wrong).status_code == 404
    for over in ({"state": "torn"}, {"final": True}):
        row = Checkpoint.objects.filter(pk=found.pk)
        row.update(**over)
        assert asked(client, parent, checkpoint=found.pk).status_code == 404
        row.update(state="whole", final=False)
    assert asked(client, parent, checkpoint=found.pk).status_code == 200
    assert asked(client_for(charlie), parent, checkpoint=found.pk).status_code == 404
    Run.objects.filter(pk=parent.pk).update(state=RunState.RUNNING)
    assert asked(client, parent, checkpoint=found.pk).status_code == 404


def test_a_script_names_the_step(client_for: Clients, parent: Run, bob: User, rita: User, monkeypatch: Any) -> None:
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: False)
    url, earlier = f"/api/v1/runs/{parent.pk}/clone", _saved(parent, 2)
    body = {"name": "again", "step": 2, "config": {"optim": {"learning_rate": 0.002}}}
    assert client_for(rita).post(url, body, content_type="application/json").status_code == 403
    made = client_for(bob).post(url, body, content_type="application/json")
    child = Run.objects.get(name="again")
    assert made.status_code == 201 and (child.resume_checkpoint, child.parent) == (earlier, parent)
    assert child.config["optim"]["learning_rate"] == 0.002
    gone = client_for(bob).post(url, {**body, "name": "x", "step": 3}, content_type="application/json")
    assert gone.status_code == 409 and "no whole checkpoint of step 3" in gone.json()["message"]
    wrong = client_for(bob).post(url, {**body, "name": "x", "step": -1}, content_type="application/json")
    assert wrong.status_code == 422
    longer = {**body, "name": "x", "config": {"run": {"max_steps": 2}}}
    refused = client_for(bob).post(url, longer, content_type="application/json")
    assert refused.status_code == 422 and "must be above 2" in refused.content.decode()


def test_the_run_page_offers_each_checkpoint_to_editors(
    client_for: Clients, parent: Run, bob: User, rita: User
) -> None:
    earlier, last = _saved(parent, 2), _saved(parent, 5)
    Checkpoint.objects.filter(pk=last.pk).update(final=True)
    url = reverse("run-detail", args=[parent.project.slug, parent.pk])
    page = client_for(bob).get(url, {"tab": "events"}).content.decode()
    assert page.count("Roll back and change</a>") == 2 and f"&amp;checkpoint={earlier.pk}" in page
    assert f"{parent.pk}&amp;checkpoint={last.pk}" not in page
    assert "Roll back and change</a>" not in client_for(rita).get(url, {"tab": "events"}).content.decode()
