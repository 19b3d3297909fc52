"""Registering in three ways, scaling, and who gets which token."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from tests.training.rollout import foreign
from tests.webapp.environments.registered import HEALTH, answering
from training.errors import TiltyardError
from webapp.common.outbound import OutboundRefused, target_of
from webapp.common.storage import environment_dir
from webapp.engine.trainer import trainer_env
from webapp.environments import checks, launchers, services
from webapp.environments.builtin import builtins
from webapp.environments.checks import Answer, Server, examine
from webapp.environments.models import MAX_REPLICAS, Environment, Kind, ReplicaState
from webapp.environments.selectors import health_view
from webapp.environments.tokens import container_token_path, ours, token_of, trainer_access
from webapp.launch import preflight as preflight_module
from webapp.people.teams.models import Project, User

UNPROVEN = {"ok": False, "episodes": 3, "problems": ["gold answer: task 7"]}


# --- Registering ------------------------------------------------------------------------------------------------------
def test_another_environment_than_meant_is_named(project: Project, bob: User, serve: Callable[..., None]) -> None:
    serve(HEALTH | {"name": "BabyAI"})
    with pytest.raises(services.RegistrationRefused) as caught:
        services.environment_register(project=project, user=bob, name="s", url="http://s:1", server_name="webshop")
    assert "This is environment BabyAI, not webshop." in caught.value.message_dict["url"]
    assert [(item.title, item.ok) for item in caught.value.findings] == [("Health", True), ("Identity", False)]


def test_a_doubt_is_shown_and_may_be_accepted(
    project: Project, bob: User, client_for: Callable[..., Client], serve: Callable[..., None]
) -> None:
    serve(validate=UNPROVEN)
    address, client = reverse("environment-new", args=[project.slug]), client_for(bob)
    values = {"name": "shop", "kind": "url", "url": "http://shop:1"}
    page = client.post(address, values)
    text = page.content.decode()
    assert page.status_code == 422 and "gold answer: task 7" in text and 'name="accept"' in text
    assert "This is environment webshop, version 2." in text and "6 of 16 sessions are free." in text
    assert not Environment.objects.exists()
    assert client.post(address, values | {"accept": "on"}).status_code == 302
    made = Environment.objects.all()[0]
    assert made.validation["ok"] is False and made.replicas.count() == 1


def test_a_refused_token_is_no_doubt(
    project: Project, bob: User, client_for: Callable[..., Client], serve: Callable[..., None]
) -> None:
    serve(status=401)
    values = {"name": "s", "kind": "url", "url": "http://s:1", "accept": "on"}
    page = client_for(bob).post(reverse("environment-new", args=[project.slug]), values)
    assert page.status_code == 422 and [item.ok for item in page.context["findings"]] == [True, True, True, False]
    assert page.context["doubtful"] is False and 'name="accept"' not in page.content.decode()
    found = examine(Server("http://s:1"))
    assert [item.title for item in found.refused] == ["Validation"] and found.doubtful == []
    with pytest.raises(services.RegistrationRefused) as caught:
        services.environment_register(project=project, user=bob, name="s", url="http://s:1", accept=True)
    assert "The server refused the request (status 401)." in caught.value.message_dict["url"]


def test_a_token_is_kept_and_never_shown(
    project: Project, bob: User, client_for: Callable[..., Client], serve: Callable[..., None]
) -> None:
    serve()
    secret = "a-token-of-the-other-side"
    values = {"name": "shop", "kind": "url", "url": "http://shop:1", "token": secret}
    client = client_for(bob)
    assert client.post(reverse("environment-new", args=[project.slug]), values).status_code == 302
    made = Environment.objects.all()[0]
    assert token_of(made.pk) == secret and not environment_dir(made.pk).exists()
    shown = client.get(reverse("environment-detail", args=[project.slug, made.pk])).content.decode()
    assert secret not in shown and secret not in json.dumps(list(Environment.objects.values()), default=str)
    refused = client.post(reverse("environment-new", args=[project.slug]), values | {"name": "?"})
    assert refused.status_code == 422 and secret not in refused.content.decode()
    services.environment_delete(environment=made)


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"kind": "process", "program": "os"}, "program", "os"),
        ({"kind": "process"}, "program", "Required"),
        ({"kind": "docker"}, "image", "Required"),
        ({"kind": "docker", "image": "postgres:16"}, "image", "may not be started"),
        ({"kind": "url"}, "url", "Required"),
        ({"kind": "process", "program": "tools", "wanted": "17"}, "wanted", "16"),
        ({"kind": "docker", "image": "tiltyard-env-tools", "options": "[1]"}, "options", "JSON object"),
        ({"kind": "docker", "image": "tiltyard-env-tools", "options": "{"}, "options", "not valid JSON"),
        ({"kind": "vm"}, "kind", "vm"),
    ],
)
def test_bad_input_is_shown_at_its_field(
    values: dict[str, str], field: str, words: str, project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    cache.clear()
    page = client_for(bob).post(reverse("environment-new", args=[project.slug]), {"name": "e", **values})
    said = page.context["form"].errors[field]
    assert page.status_code == 422 and words in " ".join(said) and ("Required." in said) is (words == "Required")
    assert not Environment.objects.exists()


def test_built_in_servers_are_read_from_their_folder() -> None:
    assert {"tools", "bfcl", "webshop"} <= set(builtins())
    assert builtins()["webshop"].memory_mb == 1024 and builtins()["tools"].tags[0] == "tool-use"


def test_a_foreign_protocol_is_asked_with_its_own_token_and_addresses(
    project: Project, bob: User, settings: Any
) -> None:
    tokens: list[str] = []

    def answer(asked: foreign.Asked) -> foreign.Reply:
        tokens.append(asked.headers.get("authorization", ""))
        return foreign.Reply(200, "This is environment BabyAI.")

    with foreign.http_server(answer) as url:
        settings.OUTBOUND_ALLOW = []
        with pytest.raises(OutboundRefused):
            checks.ask(checks.Server(url, "agentgym", {}))
        assert tokens == []
        settings.OUTBOUND_ALLOW = [url.removeprefix("http://")]
        wrong = examine(Server(url, "agentgym", {"nonsense": 1}))
        assert [item.title for item in wrong.refused] == ["Health"] and "nonsense" in wrong.refused[0].sentence
        assert tokens == [], "it is not asked with options that it does not have"
        made = services.environment_register(
            project=project,
            user=bob,
            name="s",
            url=url,
            protocol="agentgym",
            options={"id_field": "id"},
            token="t" * 20,
        )
        assert made.server_name == "BabyAI" and made.validation is None and health_view(made).slots is None
        assert set(tokens) == {f"Bearer {'t' * 20}"}
    services.environment_delete(environment=made)


def test_a_server_of_another_protocol_is_a_sentence(tools_server: str) -> None:
    with pytest.raises(TiltyardError) as caught:
        checks.ask(checks.Server(tools_server, "agentgym", {}))
    assert caught.value.code.startswith("environment_") and caught.value.message.endswith(".")
    with pytest.raises(OutboundRefused):
        checks.ask(checks.Server("http://169.254.169.254", "agentgym", {}))


# --- Images -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("image", "allowed"),
    [
        ("tiltyard-env-tools", True),
        ("tiltyard-env-tools:1.2", True),
        ("tiltyard-env-x@sha256:abc", True),
        ("evil/tiltyard-env-tools", False),
        ("tiltyard-env", False),
        ("ubuntu", False),
        ("localhost:5000/ubuntu", False),
        ("hub:5000/env", True),
        ("hub:5000/env:1.2", True),
        ("hub:5000/env:1.2@sha256:abc", True),
        ("hub:5001/env", False),
        ("hub", False),
    ],
)
def test_only_named_images_may_be_started(image: str, allowed: bool, settings: Any) -> None:
    settings.ENVIRONMENT_IMAGES = [*settings.ENVIRONMENT_IMAGES, "hub:5000/env"]
    assert launchers.image_allowed(image) is allowed


def test_without_an_engine_there_is_a_sentence(
    project: Project,
    bob: User,
    client_for: Callable[..., Client],
    launch: Callable[..., Environment],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    environment = launch(kind=Kind.DOCKER, image="tiltyard-env-tools")
    environment.replicas.create(number=1, handle={"container": "x"}, state=ReplicaState.HEALTHY)
    page = client_for(bob).get(reverse("environment-log", args=[project.slug, environment.pk, 1]))
    assert page.status_code == 200 and "Docker does not answer on this machine." in page.content.decode()


def test_only_the_container_reads_its_token(launch: Callable[..., Environment]) -> None:
    environment = launch(kind=Kind.DOCKER, image="tiltyard-env-tools")
    path = environment_dir(environment.pk) / "token-for-containers"
    assert container_token_path(environment.pk) == str(path) and path.read_text() == token_of(environment.pk)
    assert path.stat().st_mode & 0o777 == 0o444 and path.parent.stat().st_mode & 0o777 == 0o700


# --- Tokens and addresses of runs -------------------------------------------------------------------------------------
def test_a_run_gets_the_token_and_addresses_of_its_own_environment_only(
    project: Project, launch: Callable[..., Environment]
) -> None:
    environment = launch()
    answering(environment, 2)
    access = trainer_access(project, "environment:mine")
    env = trainer_env(3, access)
    assert env["TILTYARD_ENV_TOKEN"] == token_of(environment.pk)
    assert env["TILTYARD_OUTBOUND_ALLOW"].endswith(",127.0.0.1:9001,127.0.0.1:9002")
    asked = preflight_module.child_environment(access)
    assert {name: asked[name] for name in access} == {name: env[name] for name in access}, "as the trainer itself"
    other = trainer_env(3, trainer_access(project, "environment:other"))
    assert "TILTYARD_ENV_TOKEN" not in other and "9001" not in other["TILTYARD_OUTBOUND_ALLOW"]


def test_only_addresses_that_we_made_may_be_private(
    project: Project, launch: Callable[..., Environment], make_environment: Any
) -> None:
    environment = launch()
    answering(environment, 1)
    assert target_of("http://127.0.0.1:9001/health", ours=ours(environment)).port == 9001
    typed = make_environment(url="http://127.0.0.1:9001")
    for url, pairs in (
        ("http://127.0.0.1:9002", ours(environment)),
        ("http://127.0.0.1:9001", ours(typed)),
        ("http://169.254.169.254:9001", frozenset({("169.254.169.254", 9001)})),
    ):
        with pytest.raises(OutboundRefused):
            target_of(url, ours=pairs)


# --- Scaling ---------------------------------------------------------------------------------------------------------
def test_scaling_over_the_page(
    project: Project,
    bob: User,
    client_for: Callable[..., Client],
    launch: Callable[..., Environment],
    make_environment: Any,
) -> None:
    environment, client = launch(), client_for(bob)
    address = reverse("environment-scale", args=[project.slug, environment.pk])
    for values, wanted in (
        ({"add": "2"}, 3),
        ({"add": "-9"}, 0),
        ({"wanted": "5"}, 5),
        ({"wanted": "99"}, 5),
        ({"wanted": "x"}, 5),
        ({"add": "99"}, MAX_REPLICAS),
    ):
        client.post(address, values)
        environment.refresh_from_db()
        assert environment.wanted == wanted, values
    typed = make_environment()
    client.post(reverse("environment-scale", args=[project.slug, typed.pk]), {"wanted": "4"})
    typed.refresh_from_db()
    assert typed.wanted == 1
    with pytest.raises(ValidationError, match="started elsewhere"):
        services.environment_restart(environment=typed)


@pytest.mark.parametrize(
    ("figures", "left_out"),
    [
        ({"load": {"steps": -1}}, "load"),
        ({"load": {"steps_per_s": 1e400}}, "load"),
        ({"load": {"p50_ms": float("nan")}}, "load"),
        ({"load": {"errors": {"x": 10**16}}}, "load"),
        ({"baselines": [{"name": "r", "reward": float("inf"), "success": 0.5, "episodes": 1}]}, "baselines"),
        ({"load": {"steps": 10**30}, "baselines": [{"name": "r"}], "doubts": ["peers"]}, "baselines, load"),
    ],
)
def test_figures_of_a_server_that_are_none_are_left_out_and_named(
    project: Project, bob: User, serve: Callable[..., None], figures: dict[str, Any], left_out: str
) -> None:
    """An infinite one could not be stored, and the look at every environment failed of it."""
    serve(HEALTH | figures)
    found = examine(Server("http://s:1"))
    assert [item.sentence for item in found.doubtful] == [
        f"The server's counts of its own work are out of range and left out: {left_out}."
    ]
    made = services.environment_register(project=project, user=bob, name="s", url="http://s:1", accept=True)
    assert made.health["slots"] == 16 and not made.health.get("load") and not made.health.get("baselines")


def test_figures_in_range_are_kept(serve: Callable[..., None]) -> None:
    load = {"steps": 10**15, "steps_per_s": 0.0, "p50_ms": None, "p95_ms": 3.5, "errors": {"x": 0}}
    serve(HEALTH | {"load": load})
    found = examine(Server("http://s:1"))
    assert found.doubtful == [] and found.answer is not None and found.answer.load is not None
    assert [item.sentence for item in found.findings] == [
        "The server answers.",
        "This is environment webshop, version 2.",
        "6 of 16 sessions are free.",
        "4 episodes played: right answers score 1.00, wrong ones at most –.",
    ]
    assert found.answer.load.model_dump() == load


@pytest.mark.parametrize(
    ("counts", "ok"),
    [
        ({"slots": 1_000_000, "sessions": 1_000_000}, True),
        ({"slots": 1_000_001}, False),
        ({"slots": 0}, False),
        ({"slots": 1e400}, False),
        ({"sessions": -1}, False),
        ({"sessions": 10**30}, False),
        ({"slots": 1.5}, False),
    ],
)
def test_a_number_of_sessions_that_is_none_refuses_the_server(
    serve: Callable[..., None], counts: dict[str, Any], ok: bool
) -> None:
    serve(HEALTH | counts)
    found = examine(Server("http://s:1"))
    assert (found.refused == []) == ok
    assert ok or "it is not an environment server" in found.refused[0].sentence


@pytest.mark.parametrize(
    ("sessions", "slots", "free"),
    [(1, 4, 3), (4, 4, 0), (5, 4, 0), (None, 4, None), (1, None, None), (None, None, None)],
)
def test_free_sessions_are_known_where_both_counts_are(
    sessions: int | None, slots: int | None, free: int | None
) -> None:
    assert Answer(name="a", version="1", sessions=sessions, slots=slots).free == free


def test_a_version_that_is_not_said_is_a_dash(serve: Callable[..., None]) -> None:
    serve(HEALTH | {"version": ""})
    assert examine(Server("http://s:1")).findings[1].sentence == "This is environment webshop, version –."


@pytest.mark.parametrize(
    ("sessions", "doubts"), [(15, []), (16, ["0 of 16 sessions are free."]), (17, ["0 of 16 sessions are free."])]
)
def test_a_server_without_a_free_session_is_doubtful(
    serve: Callable[..., None], sessions: int, doubts: list[str]
) -> None:
    serve(HEALTH | {"sessions": sessions})
    found = examine(Server("http://s:1"))
    assert [item.sentence for item in found.doubtful] == doubts and found.refused == []


@pytest.mark.parametrize("validate", [{"ok": True, "episodes": -1}, {"ok": True, "episodes": 4, "gold_reward": 1e400}])
def test_a_proof_in_numbers_that_are_none_is_no_proof(serve: Callable[..., None], validate: dict[str, Any]) -> None:
    serve(validate=validate)
    found = examine(Server("http://s:1"))
    assert found.validation is None and "not one of an environment server" in found.doubtful[0].sentence
