"""A project's Hugging Face token: owners set it, trainers that fetch a base model get it, and no person reads it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core import serializers
from django.test import Client
from django.urls import reverse

from training.config import JobConfig
from webapp.common.secrets.models import Kind
from webapp.common.secrets.vault import secret_of
from webapp.common.storage import project_dir
from webapp.engine import supervisor
from webapp.engine.trainer import trainer_env
from webapp.people.teams.models import AuditEntry, Project, Team, User
from webapp.people.teams.services import hub_env, hub_token_set, hub_token_since
from webapp.runs.models import Run
from webapp.runs.states import RunState

Clients = Callable[..., Client]
pytestmark = pytest.mark.django_db
TOKEN = "hf_QmFzZTY0SXNOb3RBU2VjcmV0"


def url(project: Project, tail: str = "") -> str:
    return reverse("hub-token", args=[project.slug]) + tail


def hub_config(source: str = "team/base", **over: Any) -> JobConfig:
    return JobConfig.model_validate({"kind": "sft", "model": {"source": source}, **over})


def test_an_owner_sets_it_and_no_person_reads_it(
    project: Project, alice: User, bob: User, client_for: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = client_for(alice)
    assert "Hugging Face token" in client.get(reverse("team-settings", args=[project.slug])).content.decode()
    answer = client.post(url(project), {"token": f"  {TOKEN}\n"})
    assert answer.headers["Location"] == reverse("team-settings", args=[project.slug])
    assert secret_of(Kind.HUB_TOKEN, project.pk) == TOKEN and not project_dir(project.pk).exists()
    pages = [
        client_for(person).get(address).content.decode()
        for person in (alice, bob)
        for address in (
            reverse("team-settings", args=[project.slug]),
            reverse("project-page", args=[project.slug]),
            f"/api/v1/projects/{project.slug}",
        )
    ]
    pages.append(client.get(f"/api/v1/projects/{project.slug}/hub-token").content.decode())
    assert "Replace" in pages[0] and "hub-token" not in pages[3]  # an editor is not shown the form
    stored = serializers.serialize("json", [project, *AuditEntry.objects.all()])
    assert not [text for text in [*pages, stored, caplog.text] if TOKEN in text or TOKEN[:10] in text]
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.username, entry.project_id) == ("hub_token_set", "alice", project.pk)


def test_it_is_replaced_and_removed(project: Project, alice: User, client_for: Clients) -> None:
    client = client_for(alice)
    client.post(url(project), {"token": TOKEN})
    client.post(url(project), {"token": "hf_another-one"})
    assert hub_env(project, hub_config())["TILTYARD_MODEL_TOKEN"] == "hf_another-one"
    assert client.post(url(project, "remove/")).status_code == 302
    assert hub_token_since(project) is None and hub_env(project, hub_config()) == {}
    fetched = project_dir(project.pk) / "hub"
    fetched.mkdir(parents=True)  # a run that continues finds its base there
    assert hub_env(project, hub_config()) == {"TILTYARD_MODEL_CACHE": str(fetched)}
    assert client.post(url(project, "remove/")).status_code == 302  # twice changes nothing, and is no act
    assert list(AuditEntry.objects.order_by("id").values_list("action", flat=True)) == [
        "hub_token_set",
        "hub_token_set",
        "hub_token_removed",
    ]


@pytest.mark.parametrize("bad", ["", "short", "two words of it", "hf_\x00abcdefgh", "ключ-ключ-ключ", "x" * 501])
def test_what_is_no_token_is_refused_at_its_field(bad: str, project: Project, alice: User, client_for: Clients) -> None:
    answer = client_for(alice).post(url(project), {"token": bad})
    page = answer.content.decode()
    assert answer.status_code == 422 and 'aria-invalid="true"' in page and hub_token_since(project) is None
    refused = client_for(alice).post(
        f"/api/v1/projects/{project.slug}/hub-token", json.dumps({"token": bad}), content_type="application/json"
    )
    assert refused.status_code == 422 and hub_token_since(project) is None


@pytest.mark.parametrize("tail", ["", "remove/"])
def test_only_owners(
    tail: str, project: Project, alice: User, bob: User, rita: User, charlie: User, client_for: Clients
) -> None:
    hub_token_set(project=project, token=TOKEN)
    for person, code in ((bob, 403), (rita, 403), (charlie, 404)):
        assert client_for(person).post(url(project, tail), {"token": "hf_of-somebody-else"}).status_code == code
    assert client_for(None).post(url(project, tail), {"token": "hf_x"}).headers["Location"].startswith("/login/")
    assert client_for(alice).get(url(project, tail)).status_code == 405
    assert hub_env(project, hub_config())["TILTYARD_MODEL_TOKEN"] == TOKEN


def test_over_the_api(project: Project, alice: User, bob: User, charlie: User, client_for: Clients) -> None:
    client, address = client_for(alice), f"/api/v1/projects/{project.slug}/hub-token"
    assert client.get(address).json() == {"since": None}
    made = client.post(address, json.dumps({"token": TOKEN}), content_type="application/json")
    assert made.status_code == 200 and set(made.json()) == {"since"} and made.json()["since"]
    assert client.get(address).json() == made.json()
    assert client_for(bob).get(address).status_code == 403 and client_for(charlie).get(address).status_code == 404
    assert client.delete(address).json() == {"deleted": True}
    assert client.delete(address).json() == {"deleted": False}


def test_only_a_run_that_fetches_its_model_gets_it(project: Project) -> None:
    hub_token_set(project=project, token=TOKEN)
    place = project_dir(project.pk) / "hub"
    assert hub_env(project, hub_config()) == {"TILTYARD_MODEL_TOKEN": TOKEN, "TILTYARD_MODEL_CACHE": str(place)}
    for source in ("starter", "/data/runs/x/1/model", "./folder/model", "run:night/1"):
        assert hub_env(project, hub_config(source)) == {}
    scripted = hub_config(kind="evaluate", evaluate={"policy": "empty"})
    assert hub_env(project, scripted) == {}
    other = Project.objects.create(team=Team.objects.create(name="Others"), name="Other", slug="other")
    assert hub_env(other, hub_config()) == {}


@pytest.mark.django_db(transaction=True)
def test_the_trainer_gets_it_and_what_a_trainer_starts_does_not(
    project: Project, make_run: Callable[..., Run], make_dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.children import CERTIFICATES, PLACES, bare_env, child_env
    from training.config import TRACKERS
    from webapp.engine import trainer

    hub_token_set(project=project, token=TOKEN)
    config = hub_config(data={"train": make_dataset().reference}, report={"to": ["trackio"]})
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: False)
    run = make_run(config=config, state=RunState.QUEUED)
    lease = supervisor.claim(run.pk)
    assert lease is not None
    arguments, access = supervisor.Supervisor(lease)._prepare()
    env = trainer_env(3, access)
    assert env["TILTYARD_MODEL_TOKEN"] == TOKEN
    assert TOKEN not in Path(arguments[0]).read_text()
    run.refresh_from_db()
    assert TOKEN not in json.dumps([run.resolved, run.config])
    # As in the trainer: what it starts is made of these lists.
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    tracker = child_env(PLACES, CERTIFICATES, TRACKERS["trackio"].variables)
    assert TOKEN not in str([tracker, bare_env(), child_env(trainer.ENV_NAMES)])
