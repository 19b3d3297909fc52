"""Two people's notes, cards and rules overwrote each other unseen: ``If-Match`` refuses what was read too early."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from webapp.people.teams.models import AuditEntry, Project, User
from webapp.runs.advisories.models import DoctorRules
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel

Clients = Callable[..., Client]


@pytest.fixture
def things(project: Project, make_run: Any) -> dict[str, tuple[str, dict[str, Any], dict[str, Any]]]:
    """An address, what the first writes and what the second writes."""
    model = RegisteredModel.objects.create(project=project, name="small", kind="hub", source="a/b")
    return {
        "run": (f"/api/v1/runs/{make_run().pk}", {"notes": "one"}, {"notes": "two"}),
        "tags": (f"/api/v1/runs/{make_run().pk}", {"tags": ["one"]}, {"notes": "two"}),
        "model": (f"/api/v1/models/{model.pk}", {"notes": "one"}, {"tags": ["two"]}),
        "card": (f"/api/v1/models/{model.pk}", {"card": {"licence": "MIT"}}, {"card": {"licence": "Apache-2.0"}}),
        "doctor": (
            f"/api/v1/projects/{project.slug}/doctor",
            {"reactions": {"stall": "keep"}},
            {"reactions": {"stall": "pause"}},
        ),
        "retention": (
            f"/api/v1/projects/{project.slug}/retention",
            {"rules": {"logs": {"days": 3}}},
            {"rules": {"logs": {"days": 4}}},
        ),
    }


def _patch(client: Client, address: str, body: Any, tag: str | None = None) -> Any:
    headers = {"If-Match": tag} if tag is not None else {}
    return client.patch(address, json.dumps(body), content_type="application/json", headers=headers)


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["run", "tags", "model", "card", "doctor", "retention"])
def test_the_second_of_two_writers_is_refused(
    name: str, things: dict[str, Any], alice: User, client_for: Clients
) -> None:
    address, one, two = things[name]
    client = client_for(alice)
    read = client.get(address)["ETag"]
    assert read == client.get(address)["ETag"] and read.startswith('"') and len(read) == 34
    first = _patch(client, address, one, read)
    assert first.status_code == 200 and first["ETag"] == client.get(address)["ETag"] != read
    rows, shown = AuditEntry.objects.count(), client.get(address).json()
    refused = _patch(client, address, two, read)
    assert (refused.status_code, refused.json()["code"], refused.json()["detail"]) == (412, "changed_meanwhile", None)
    assert refused.json()["message"] == "It was changed after you read it; read it again."
    assert client.get(address).json() == shown and AuditEntry.objects.count() == rows
    assert _patch(client, address, two, f'"other", {first["ETag"]}').status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize("tag", [None, "*", " * "])
def test_without_a_tag_the_last_one_wins(
    tag: str | None, things: dict[str, Any], alice: User, client_for: Clients
) -> None:
    for address, one, two in things.values():
        assert [_patch(client_for(alice), address, body, tag).status_code for body in (one, two)] == [200, 200]


@pytest.mark.django_db
@pytest.mark.parametrize("tag", ["", "x", '"', 'W/"0"', '"0"', '"' + "0" * 32 + '"'])
def test_what_is_no_tag_of_it_is_refused(tag: str, things: dict[str, Any], alice: User, client_for: Clients) -> None:
    address, one, _two = things["run"]
    assert _patch(client_for(alice), address, one, tag).status_code == 412
    assert _patch(client_for(alice), address, one, '"' + "0" * 1000).status_code == 422


@pytest.mark.django_db
def test_a_run_at_work_changes_and_its_tag_does_not(make_run: Any, alice: User, client_for: Clients) -> None:
    run, client = make_run(state="running"), client_for(alice)
    read = client.get(f"/api/v1/runs/{run.pk}")["ETag"]
    Run.objects.filter(pk=run.pk).update(step=7, seq=99)
    assert client.get(f"/api/v1/runs/{run.pk}")["ETag"] == read
    Run.objects.filter(pk=run.pk).update(state="succeeded")
    assert _patch(client, f"/api/v1/runs/{run.pk}", {"archived": True}, read)["ETag"] != read


@pytest.mark.django_db
def test_the_language_of_the_reader_is_no_change(things: dict[str, Any], alice: User, client_for: Clients) -> None:
    address, tags = things["doctor"][0], set()
    for language in ("en", "zh-hans"):
        tags.add(client_for(alice).get(address, headers={"Accept-Language": language})["ETag"])
    assert len(tags) == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_at_once_one_is_refused(project: Project, alice: User, client_for: Clients) -> None:
    """Rules that have no row yet: nothing of theirs could be locked."""
    address, client = f"/api/v1/projects/{project.slug}/doctor", client_for(alice)
    read, answers = client.get(address)["ETag"], []
    gate = threading.Barrier(2)

    def write(reaction: str) -> None:
        mine = client_for(alice)
        gate.wait(30)
        answers.append(_patch(mine, address, {"reactions": {"stall": reaction}}, read).status_code)
        connection.close()

    threads = [threading.Thread(target=write, args=[reaction]) for reaction in ("keep", "pause")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200, 412] and DoctorRules.objects.count() == 1


@pytest.mark.django_db
def test_the_schema_describes_it(client: Client) -> None:
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    for path in ("runs/{run_id}", "models/{model_id}", "projects/{slug}/doctor", "projects/{slug}/retention"):
        names = [
            item["name"].lower() for item in paths[f"/api/v1/{path}"]["patch"]["parameters"] if item["in"] == "header"
        ]
        assert names == ["if-match"], path
