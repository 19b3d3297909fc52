"""Registering and checking environment servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from training.config import JobConfig
from training.errors import EnvironmentUnreachable
from webapp.common.outbound import Reply
from webapp.environments import checks, services
from webapp.environments.models import Environment
from webapp.environments.selectors import health_view
from webapp.people.teams.models import Project, User

HEALTHY = {"name": "tools", "version": "1.2", "sessions": 3, "slots": 16}
PROVED = {"ok": True, "episodes": 6, "gold_reward": 1.0, "bad_reward": 0.0}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Decide what servers answer, all of them or each by its address."""

    def set_answer(what: Any, status: int = 200) -> None:
        def fetch(url: str, **_how: Any) -> Reply:
            if isinstance(what, Exception):
                raise what
            body = PROVED if url.endswith("/validate") else what.get(url, what) if isinstance(what, dict) else what
            return Reply(status, body if isinstance(body, bytes) else json.dumps(body).encode())

        monkeypatch.setattr(checks, "fetch", fetch)

    cache.clear()
    return set_answer


def test_a_real_server_is_registered(project: Project, bob: User, tools_server: str) -> None:
    made = services.environment_register(project=project, user=bob, name="tools", url=tools_server + "/")
    assert made.healthy and made.server_name and made.url == tools_server
    assert health_view(made).slots


def test_registering_through_the_page(
    project: Project, bob: User, client_for: Callable[..., Client], answers: Callable[..., None]
) -> None:
    answers(HEALTHY)
    address = reverse("environment-new", args=[project.slug])
    assert client_for(bob).post(address, {"name": "tools", "url": "http://tools:8000"}).status_code == 302
    twice = client_for(bob).post(address, {"name": "tools", "url": "http://tools:8000"})
    assert twice.status_code == 422 and "exists already" in twice.content.decode()


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        ({"hello": "world"}, 200, "it is not an environment server"),
        (b"<html>", 200, "it is not an environment server"),
        (b"[" * 5000, 200, "it is not an environment server"),
        (HEALTHY, 503, "status 503"),
        (HEALTHY | {"wire_version": 99}, 200, "version 99"),
        (HEALTHY | {"name": "x" * 200}, 200, "too long"),
        (HEALTHY | {"slots": 0}, 200, "it is not an environment server"),
        (EnvironmentUnreachable("Nothing accepts connections at this address."), 0, "Nothing accepts"),
    ],
)
def test_what_is_no_environment_is_refused(
    answer: Any, status: int, words: str, project: Project, bob: User, answers: Callable[..., None]
) -> None:
    answers(answer, status)
    with pytest.raises(ValidationError) as caught:
        services.environment_register(project=project, user=bob, name="tools", url="http://tools:8000")
    assert words in " ".join(caught.value.message_dict["url"])
    assert not Environment.objects.exists()


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/", "http://10.0.0.1", "file:///etc/passwd", "http://u:p@8.8.8.8"]
)
def test_forbidden_addresses_are_refused(
    url: str, project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    cache.clear()
    answer = client_for(bob).post(reverse("environment-new", args=[project.slug]), {"name": "x", "url": url})
    assert answer.status_code == 422 and "cannot be registered" in answer.content.decode()
    assert not Environment.objects.exists()


def test_another_server_at_the_address_is_unhealthy(make_environment: Any, answers: Callable[..., None]) -> None:
    environment = make_environment(server_name="tools")
    answers(HEALTHY | {"name": "impostor"})
    checked = services.environment_check(environment=environment)
    assert checked.healthy is False
    assert health_view(checked).error == "This is environment impostor, not tools."
    answers(HEALTHY)
    again = services.environment_check(environment=environment)
    assert again.healthy and health_view(again).sessions == 3
    second = environment.replicas.create(number=2, url="http://127.0.0.1:2", state="healthy")
    answers(HEALTHY | {"name": "impostor"})
    services.environment_check(environment=environment)
    second.refresh_from_db()
    assert (environment.replicas.get(number=1).state, second.state) == ("unhealthy", "healthy"), "the first was asked"
    environment.replicas.update(state="healthy", health={})
    environment.replicas.filter(number=1).update(url="http://127.0.0.1:3")
    answers({"http://127.0.0.1:3/health": HEALTHY})
    services.environment_check(environment=Environment.objects.get())
    assert [bool(row.health) for row in environment.replicas.order_by("number")] == [True, False]


def test_probes_are_limited(
    project: Project, bob: User, client_for: Callable[..., Client], make_environment: Any, answers: Callable[..., None]
) -> None:
    answers(HEALTHY)
    client = client_for(bob)
    environment = make_environment()
    address = reverse("environment-check", args=[project.slug, environment.pk])
    new = reverse("environment-new", args=[project.slug])
    assert [client.post(new, {"name": "?"}).status_code for _ in range(22)] == [422] * 22, "they ask no server"
    tried = [client.post(address) for _ in range(22)]
    assert tried[0].status_code == 302 and "Retry-After" not in tried[0].headers
    assert tried[-1].status_code == 429 and tried[-1]["Retry-After"] == "60"
    full = client.post(new, {"name": "e", "kind": "process", "program": "tools"})
    assert full.status_code == 429 and Environment.objects.count() == 1
    tested = client.post(f"/api/v1/environments/{environment.pk}/check")
    assert tested.status_code == 429 and tested["Retry-After"] == "60", "a script has to know when to come back"


def test_environment_in_use_is_not_removed(
    project: Project, bob: User, client_for: Callable[..., Client], make_environment: Any, make_run: Any
) -> None:
    environment = make_environment()
    make_run(config=JobConfig(environment={"name": environment.reference}))  # type: ignore[arg-type]
    answer = client_for(bob).post(reverse("environment-delete", args=[project.slug, environment.pk]), follow=True)
    assert "not ended" in answer.content.decode() and Environment.objects.exists()
