"""Options of built-in servers: the pages and the API that set them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from training.config import JobConfig
from webapp.environments import services
from webapp.environments.builtin import places_offered
from webapp.environments.models import Environment, Kind, ReplicaState
from webapp.environments.services import environment_change
from webapp.people.teams.models import Project, User

LIMITS = {"slots": 8, "cpus": 1.0, "memory_mb": 768, "pids": 128}


@pytest.fixture
def launch(project: Project, bob: User) -> Callable[..., Environment]:
    def make(**over: Any) -> Environment:
        fields = {"name": "mine", "kind": Kind.PROCESS, "program": "webshop", **LIMITS}
        return services.environment_launch(project=project, user=bob, **(fields | over))

    return make


def edit_url(environment: Environment) -> str:
    return reverse("environment-edit", args=[environment.project.slug, environment.pk])


def test_starting_one_with_options_through_the_page(
    project: Project, bob: User, client_for: Callable[..., Client], data: Path
) -> None:
    address, client = reverse("environment-new", args=[project.slug]), client_for(bob)
    text = client.get(address).content.decode()
    assert 'name="webshop-products"' in text and '<option value="toolbench/tools">' in text and "outside" not in text
    values = {
        "name": "shop",
        "kind": "process",
        "program": "webshop",
        "webshop-products": "60",
        "webshop-data": "--host",
        "bfcl-speech": "nonsense of a group that is not shown",
    }
    assert client.post(address, values).status_code == 302
    made = Environment.objects.all()[0]
    assert made.arguments == {"products": 60, "data": "--host"}
    page = client.get(reverse("environment-detail", args=[project.slug, made.pk])).content.decode()
    assert "Products <span" in page and ">60</span>" in page


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("webshop-data", "../outside"),
        ("webshop-data", "way-out"),
        ("webshop-products", "-1"),
        ("webshop-products", "many"),
        ("webshop-reward", "--insecure"),
    ],
)
def test_a_wrong_option_is_shown_at_its_field(
    project: Project, bob: User, client_for: Callable[..., Client], data: Path, name: str, value: str
) -> None:
    values = {"name": "shop", "kind": "process", "program": "webshop", name: value}
    page = client_for(bob).post(reverse("environment-new", args=[project.slug]), values)
    assert page.status_code == 422 and list(page.context["form"].errors) == [name]
    assert not Environment.objects.exists()


def test_an_empty_data_folder_says_where_data_goes(
    project: Project, bob: User, client_for: Callable[..., Client], settings: Any, tmp_path: Path
) -> None:
    settings.ENVIRONMENT_DATA_DIR = tmp_path
    text = client_for(bob).get(reverse("environment-new", args=[project.slug])).content.decode()
    assert str(tmp_path) in text and "The operator puts data there" in text


def test_options_are_changed_and_every_replica_restarts(
    launch: Callable[..., Environment], client_for: Callable[..., Client], bob: User
) -> None:
    made = launch(arguments={"products": 60})
    made.replicas.create(number=1, state=ReplicaState.HEALTHY)
    Environment.objects.filter(pk=made.pk).update(validation={"ok": True})
    client, values = client_for(bob), {"slots": "8", "memory_mb": "768", "cpus": "1.0", "webshop-products": "60"}
    page = client.get(edit_url(made)).content.decode()
    assert 'value="60"' in page and "restarts every replica" in page and 'name="pids"' not in page
    assert client.post(edit_url(made), values).status_code == 302
    assert made.replicas.filter(wish="").count() == 1  # nothing was changed, so nothing restarts
    assert client.post(edit_url(made), values | {"slots": "16", "webshop-products": ""}).status_code == 302
    made.refresh_from_db()
    assert (made.slots, made.arguments, made.validation) == (16, {}, None)
    assert made.replicas.filter(wish=services.RESTART).count() == 1


def test_nothing_is_changed_under_an_open_run(
    launch: Callable[..., Environment], client_for: Callable[..., Client], bob: User, make_run: Any
) -> None:
    made = launch()
    made.replicas.create(number=1)
    make_run(name="busy", config=JobConfig(environment={"name": made.reference}))  # type: ignore[arg-type]
    page = client_for(bob).post(edit_url(made), {"slots": "9", "memory_mb": "768", "cpus": "1"})
    assert page.status_code == 422 and "used by a run that has not ended: busy" in page.content.decode()
    made.refresh_from_db()
    assert made.slots == 8 and made.replicas.filter(wish="").count() == 1


@pytest.mark.parametrize(
    "bad", [{"slots": "0"}, {"slots": ""}, {"memory_mb": "1"}, {"cpus": "nan"}, {"webshop-data": "../.."}]
)
def test_wrong_settings_are_refused(
    launch: Callable[..., Environment], client_for: Callable[..., Client], bob: User, bad: dict[str, str]
) -> None:
    made = launch()
    page = client_for(bob).post(edit_url(made), {"slots": "9", "memory_mb": "768", "cpus": "1"} | bad)
    assert page.status_code == 422 and list(page.context["form"].errors) == list(bad)
    assert Environment.objects.filter(slots=8).count() == 1


def test_who_may_change_settings(
    launch: Callable[..., Environment], client_for: Callable[..., Client], alice: User, rita: User, charlie: User
) -> None:
    made = launch()
    answers = [client_for(user).get(edit_url(made)).status_code for user in (alice, rita, charlie, None)]
    assert answers == [200, 403, 404, 302]
    assert client_for(alice).put(edit_url(made)).status_code == 405


def test_a_server_at_an_address_has_nothing_to_set(
    make_environment: Any, client_for: Callable[..., Client], bob: User
) -> None:
    made = make_environment()
    assert client_for(bob).get(edit_url(made))["Location"].endswith(f"/environments/{made.pk}/")
    with pytest.raises(ValidationError, match="started elsewhere"):
        environment_change(environment=made, arguments={}, **LIMITS)  # type: ignore[arg-type]


def test_a_name_that_is_no_text_is_not_offered(data: Path) -> None:
    (data / os.fsdecode(b"bad-\xff")).mkdir()
    (data / "line\nbreak").mkdir()
    assert all(name.isprintable() and "bad" not in name for name in places_offered("folder"))


def test_the_api_takes_options_too(project: Project, bob: User) -> None:
    client = Client()
    client.force_login(bob)
    where = f"/api/v1/projects/{project.slug}/environments"
    body = {"name": "shop", "program": "webshop", "arguments": {"products": 60}, "wanted": 0}
    made = client.post(where, body, content_type="application/json")
    assert (made.status_code, made.json()["arguments"]) == (201, {"products": 60})
    wrong = {"name": "other", "program": "webshop", "arguments": {"host": "0.0.0.0"}}
    refused = client.post(where, wrong, content_type="application/json")
    assert refused.status_code == 422 and "host" in refused.content.decode()
    assert not Environment.objects.filter(name="other").exists()
