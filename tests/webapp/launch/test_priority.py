"""The class of a run is chosen at its launch, by owners alone, and a copy begins with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.webapp.launch.test_checked import Trainer, checked, data_of
from tests.webapp.launch.test_sweeps import AXES, of_fold
from training.config import JobConfig
from webapp.engine.services import run_create
from webapp.launch import preflight
from webapp.launch.findings import Check
from webapp.launch.sweeps import sweep_create
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.states import Priority

pytestmark = pytest.mark.django_db
Clients = Callable[..., Client]
SELECT = 'name="priority"'


@pytest.fixture
def config(make_dataset: Any, make_environment: Any, settings: Any) -> JobConfig:
    settings.OUTBOUND_ALLOW = ["127.0.0.1/32"]
    found = {"data": {"train": make_dataset().reference}, "environment": {"name": make_environment().reference}}
    return JobConfig.model_validate(found)


@pytest.fixture(autouse=True)
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    made = Trainer()
    monkeypatch.setattr(preflight, "_trainer_checks", made)
    monkeypatch.setattr(preflight, "_check_room", lambda config, environment, room: Check("Environment server", True))
    return made


def _new(project: Project, **query: Any) -> str:
    return reverse("run-new", args=[project.slug], query=query or None)


def _form(project: Project, config: JobConfig, **more: Any) -> dict[str, Any]:
    return data_of(project, config) | more


def _send(client: Client, path: str, **body: Any) -> Any:
    return client.post(f"/api/v1{path}", body, content_type="application/json")


def test_owners_choose_the_class_on_the_form(
    project: Project, alice: User, bob: User, client_for: Clients, config: JobConfig
) -> None:
    owner, editor = client_for(alice), client_for(bob)
    assert '<option value="normal" selected>' in owner.get(_new(project)).content.decode()
    assert SELECT not in editor.get(_new(project)).content.decode()
    assert owner.post(_new(project), _form(project, config, name="fast", priority="high")).status_code == 302
    assert editor.post(_new(project), _form(project, config, name="plain")).status_code == 302
    assert editor.post(_new(project), _form(project, config, name="same", priority="normal")).status_code == 302
    for value in ("high", "low"):
        assert editor.post(_new(project), _form(project, config, name=value, priority=value)).status_code == 403
    wrong = owner.post(_new(project), _form(project, config, name="wrong", priority="urgent"))
    assert wrong.status_code == 422
    assert dict(Run.objects.values_list("name", "priority")) == {"fast": "high", "plain": "normal", "same": "normal"}
    fast = checked(Run.objects.get(name="fast"))
    assert (fast.state, fast.priority) == ("queued", "high")


def test_a_draft_keeps_its_class_unless_an_owner_changes_it(
    project: Project, alice: User, bob: User, client_for: Clients, config: JobConfig
) -> None:
    draft = run_create(project=project, user=alice, name="d", config=config, launch=False, priority=Priority.LOW)
    shown = client_for(alice).get(_new(project, edit=draft.pk)).content.decode()
    assert '<option value="low" selected>' in shown
    sent = _form(project, config, name="d2", draft=str(draft.pk))
    assert client_for(bob).post(_new(project), sent).status_code == 302
    draft.refresh_from_db()
    assert (draft.name, draft.priority) == ("d2", "low")
    Run.objects.filter(pk=draft.pk).update(state="draft", phase="")
    assert client_for(alice).post(_new(project), sent | {"priority": "high"}).status_code == 302
    draft.refresh_from_db()
    assert draft.priority == "high" and checked(draft).priority == "high"


def test_a_copy_begins_with_the_class_where_the_person_may_choose_it(
    project: Project,
    alice: User,
    bob: User,
    client_for: Clients,
    config: JobConfig,
) -> None:
    source = run_create(project=project, user=alice, name="a", config=config, launch=False, priority=Priority.HIGH)
    assert '<option value="high" selected>' in client_for(alice).get(_new(project, clone=source.pk)).content.decode()
    assert SELECT not in client_for(bob).get(_new(project, clone=source.pk)).content.decode()
    path = f"/runs/{source.pk}/clone"
    for user, more, expected in (
        (alice, {}, "high"),
        (alice, {"priority": "low"}, "low"),
        (bob, {}, "normal"),
        (bob, {"priority": "normal"}, "normal"),
    ):
        made = _send(client_for(user), path, launch=False, **more)
        assert (made.status_code, made.json()["priority"]) == (201, expected), (user, more)
    refused = _send(client_for(bob), path, launch=False, priority="high")
    assert refused.status_code == 403 and refused.json()["code"] == "forbidden"


def test_the_yaml_page_carries_the_class_there_and_back(
    project: Project,
    alice: User,
    client_for: Clients,
    config: JobConfig,
) -> None:
    client, url = client_for(alice), reverse("run-yaml", args=[project.slug])
    shown = client.post(url, _form(project, config, name="r", priority="low"))
    text = shown.context["yaml"]
    assert '<input type="hidden" name="priority" value="low">' in shown.content.decode()
    assert "priority" not in text, "the class is no option of the job"
    again = client.post(url, {"yaml": text, "name": "r", "priority": "low"}).content.decode()
    assert '<option value="low" selected>' in again
    broken = client.post(url, {"yaml": "run: [", "name": "r", "priority": "low"})
    assert broken.status_code == 422 and 'name="priority" value="low"' in broken.content.decode()
    assert '<option value="normal" selected>' in client.post(url, {"yaml": text, "priority": "x"}).content.decode()


def test_over_the_api_the_class_is_a_field_of_the_launch(
    project: Project,
    alice: User,
    bob: User,
    client_for: Clients,
    config: JobConfig,
) -> None:
    path, body = f"/projects/{project.slug}/runs", {"config": config.model_dump(mode="json")}
    made = _send(client_for(alice), path, name="a", priority="high", launch=False, **body)
    assert (made.status_code, made.json()["priority"]) == (201, "high")
    made = _send(client_for(bob), path, name="b", launch=False, **body)
    assert (made.status_code, made.json()["priority"]) == (201, "normal")
    assert _send(client_for(bob), path, name="c", priority="low", launch=False, **body).status_code == 403
    assert _send(client_for(alice), path, name="c", priority="urgent", **body).status_code == 422
    assert set(Run.objects.values_list("name", flat=True)) == {"a", "b"}


def test_one_field_gives_all_runs_of_a_sweep_their_class(
    project: Project, alice: User, bob: User, client_for: Clients, config: JobConfig
) -> None:
    sweep = sweep_create(project=project, user=alice, name="s", config=config, axes=AXES, priority=Priority.HIGH)
    assert [row.run.priority for row in sweep.runs.all()] == ["high"] * 4
    assert [checked(row.run).priority for row in sweep.runs.all()] == ["high"] * 4
    body = {"config": config.model_dump(mode="json"), "axes": [{"option": "run.seed", "values": [1, 2]}]}
    path = f"/projects/{project.slug}/sweeps"
    made = _send(client_for(alice), path, name="t", priority="low", **body)
    assert made.status_code == 201 and set(Run.objects.filter(sweep_run__sweep__name="t").values_list("priority")) == {
        ("low",)
    }
    assert _send(client_for(bob), path, name="u", priority="low", **body).status_code == 403
    url = reverse("sweep-new", args=[project.slug])
    sent = _form(project, config, name="v", priority="high") | of_fold(("run.seed", "1,2"))
    assert client_for(bob).post(url, sent).status_code == 403
    assert client_for(alice).post(url, sent).status_code == 302
    assert client_for(bob).post(url, sent | {"name": "w", "priority": "", "idempotency_key": "w"}).status_code == 302
    found = {
        name: set(Run.objects.filter(sweep_run__sweep__name=name).values_list("priority", flat=True)) for name in "vw"
    }
    assert found == {"v": {"high"}, "w": {"normal"}}
