"""Registering in three ways, scaling, history, capacity, and who gets which token."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.training.rollout import foreign
from training.config import JobConfig
from training.errors import EnvironmentTimeout, TiltyardError
from webapp.environments import checks, services
from webapp.environments.builtin import builtins
from webapp.environments.capacity import Room, replicas_to_add, room_of
from webapp.environments.launchers import docker
from webapp.environments.models import MAX_REPLICAS, Environment, Kind, ReplicaState
from webapp.environments.selectors import environment_named, health_view, history
from webapp.environments.tokens import container_token_path, ours, token_of, trainer_access
from webapp.environments.watch import Watch, samples_prune
from webapp.outbound import OutboundRefused, Reply, target_of
from webapp.runs import preflight as preflight_module
from webapp.runs.preflight import preflight
from webapp.runs.trainer import trainer_env
from webapp.storage import environment_dir
from webapp.teams.models import Project, User

HEALTH = {"name": "webshop", "version": "2", "sessions": 10, "slots": 16}
UNPROVEN = {"ok": False, "episodes": 3, "problems": ["gold answer: task 7"]}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``serve(health, validate)``: what every server answers."""
    cache.clear()

    def set_answers(health: Any = HEALTH, validate: Any = None, status: int = 200) -> None:
        def fetch(url: str, **_how: Any) -> Reply:
            if url.endswith("/validate"):
                return Reply(status, json.dumps(validate or {"ok": True, "episodes": 4, "gold_reward": 1.0}).encode())
            if isinstance(health, Exception):
                raise health
            return Reply(200, json.dumps(health).encode())

        monkeypatch.setattr(checks, "fetch", fetch)

    return set_answers


@pytest.fixture
def launch(project: Project, bob: User) -> Callable[..., Environment]:
    def make(**over: Any) -> Environment:
        fields = {"name": "mine", "kind": Kind.PROCESS, "program": "tools", "slots": 8}
        return services.environment_launch(project=project, user=bob, **(fields | over))

    return make


def _answering(environment: Environment, count: int, port: int = 9000) -> None:
    for number in range(1, count + 1):
        environment.replicas.create(number=number, url=f"http://127.0.0.1:{port + number}", state=ReplicaState.HEALTHY,
                                    health=HEALTH)  # fmt: skip


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


def test_a_refused_token_is_no_doubt(project: Project, bob: User, serve: Callable[..., None]) -> None:
    serve(status=401)
    with pytest.raises(services.RegistrationRefused) as caught:
        services.environment_register(project=project, user=bob, name="s", url="http://s:1", accept=True)
    assert "The server refused us (status 401)." in caught.value.message_dict["url"]


def test_a_token_is_kept_in_a_file_and_never_shown(
    project: Project, bob: User, client_for: Callable[..., Client], serve: Callable[..., None]
) -> None:
    serve()
    secret = "a-token-of-the-other-side"
    values = {"name": "shop", "kind": "url", "url": "http://shop:1", "token": secret}
    client = client_for(bob)
    assert client.post(reverse("environment-new", args=[project.slug]), values).status_code == 302
    made = Environment.objects.all()[0]
    file = environment_dir(made.pk) / "token"
    assert token_of(made.pk) == secret and file.stat().st_mode & 0o777 == 0o600
    shown = client.get(reverse("environment-detail", args=[project.slug, made.pk])).content.decode()
    assert secret not in shown and secret not in json.dumps(list(Environment.objects.values()), default=str)
    refused = client.post(reverse("environment-new", args=[project.slug]), values | {"name": "?"})
    assert refused.status_code == 422 and secret not in refused.content.decode()
    services.environment_delete(environment=made)


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"kind": "process", "program": "os"}, "program", "os"),
        ({"kind": "process"}, "program", "needed"),
        ({"kind": "docker"}, "image", "needed"),
        ({"kind": "docker", "image": "postgres:16"}, "image", "may not be started"),
        ({"kind": "url"}, "url", "needed"),
        ({"kind": "process", "program": "tools", "wanted": "17"}, "wanted", "16"),
        ({"kind": "docker", "image": "tiltyard-env-tools", "options": "[1]"}, "options", "JSON object"),
        ({"kind": "docker", "image": "tiltyard-env-tools", "options": "{"}, "options", "not JSON"),
        ({"kind": "vm"}, "kind", "vm"),
    ],
)
def test_bad_input_stands_beside_its_field(
    values: dict[str, str], field: str, words: str, project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    cache.clear()
    page = client_for(bob).post(reverse("environment-new", args=[project.slug]), {"name": "e", **values})
    assert page.status_code == 422 and words in " ".join(page.context["form"].errors[field])
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
        ("tiltyard-env-tools", True), ("tiltyard-env-tools:1.2", True), ("tiltyard-env-x@sha256:abc", True),
        ("evil/tiltyard-env-tools", False), ("tiltyard-env", False), ("ubuntu", False),
        ("localhost:5000/ubuntu", False),
    ],
)  # fmt: skip
def test_only_named_images_may_be_started(image: str, allowed: bool) -> None:
    assert docker.image_allowed(image) is allowed


def test_without_an_engine_there_is_a_sentence(
    project: Project, bob: User, client_for: Callable[..., Client], launch: Callable[..., Environment],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    environment = launch(kind=Kind.DOCKER, image="tiltyard-env-tools")
    environment.replicas.create(number=1, handle={"container": "x"}, state=ReplicaState.HEALTHY)
    page = client_for(bob).get(reverse("environment-log", args=[project.slug, environment.pk, 1]))
    assert page.status_code == 200 and "Docker does not answer on this machine." in page.content.decode()


def test_a_container_reads_its_token_and_nobody_else_does(launch: Callable[..., Environment]) -> None:
    environment = launch(kind=Kind.DOCKER, image="tiltyard-env-tools")
    path = environment_dir(environment.pk) / "token-for-containers"
    assert container_token_path(environment.pk) == str(path) and path.read_text() == token_of(environment.pk)
    assert path.stat().st_mode & 0o777 == 0o444 and path.parent.stat().st_mode & 0o777 == 0o700


# --- Tokens and addresses of runs -------------------------------------------------------------------------------------
def test_a_run_gets_the_token_and_addresses_of_its_own_environment_only(
    project: Project, launch: Callable[..., Environment]
) -> None:
    environment = launch()
    _answering(environment, 2)
    access = trainer_access(project, "environment:mine")
    env = trainer_env(3, access)
    assert env["TILTYARD_ENV_TOKEN"] == token_of(environment.pk)
    assert env["TILTYARD_OUTBOUND_ALLOW"].endswith(",127.0.0.1:9001,127.0.0.1:9002")
    asked = preflight_module._environment(access)
    assert {name: asked[name] for name in access} == {name: env[name] for name in access}, "as the trainer itself"
    other = trainer_env(3, trainer_access(project, "environment:other"))
    assert "TILTYARD_ENV_TOKEN" not in other and "9001" not in other["TILTYARD_OUTBOUND_ALLOW"]


def test_only_addresses_that_we_made_may_be_private(
    project: Project, launch: Callable[..., Environment], make_environment: Any
) -> None:
    environment = launch()
    _answering(environment, 1)
    assert target_of("http://127.0.0.1:9001/health", ours=ours(environment)).port == 9001
    typed = make_environment(url="http://127.0.0.1:9001")
    for url, pairs in (("http://127.0.0.1:9002", ours(environment)), ("http://127.0.0.1:9001", ours(typed)),
                       ("http://169.254.169.254:9001", frozenset({("169.254.169.254", 9001)}))):  # fmt: skip
        with pytest.raises(OutboundRefused):
            target_of(url, ours=pairs)


# --- Scaling and capacity ---------------------------------------------------------------------------------------------
def test_scaling_over_the_page(
    project: Project, bob: User, client_for: Callable[..., Client], launch: Callable[..., Environment],
    make_environment: Any,
) -> None:  # fmt: skip
    environment, client = launch(), client_for(bob)
    address = reverse("environment-scale", args=[project.slug, environment.pk])
    for values, wanted in (({"add": "2"}, 3), ({"add": "-9"}, 0), ({"wanted": "5"}, 5), ({"wanted": "99"}, 5),
                           ({"wanted": "x"}, 5), ({"add": "99"}, MAX_REPLICAS)):  # fmt: skip
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
    ("wanted", "answering", "free", "needed", "more"),
    [(1, 1, 8, 8, 0), (1, 1, 4, 20, 2), (3, 1, 4, 20, 0), (0, 0, None, 9, 2), (16, 16, 0, 99, 0), (15, 15, 0, 99, 1)],
)
def test_how_many_replicas_would_do(
    wanted: int, answering: int, free: int | None, needed: int, more: int, launch: Callable[..., Environment]
) -> None:
    environment = launch(wanted=wanted)
    room = Room(answering, answering, answering * 8, free, None)
    assert replicas_to_add(environment, room, needed) == more


def _job(make_dataset: Any, environment: Environment) -> JobConfig:
    return JobConfig(
        data={"train": make_dataset(name="d").reference}, environment={"name": environment.reference},
        rollout={"prompts_per_step": 4, "num_generations": 8},
    )  # type: ignore[arg-type]  # fmt: skip


def test_preflight_sums_free_slots_and_offers_replicas(
    project: Project, bob: User, client_for: Callable[..., Client], launch: Callable[..., Environment],
    make_dataset: Any, serve: Callable[..., None], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(preflight_module, "_trainer_checks", lambda config, access: [])
    serve(HEALTH | {"name": "tools"})
    environment = launch(wanted=2)
    config = _job(make_dataset, environment)
    stopped = next(item for item in preflight(project, config).checks if item.offer)
    assert stopped.message == "No server of environment “mine” runs." and not stopped.hard
    _answering(environment, 2)
    short = next(item for item in preflight(project, config).checks if item.offer)
    assert "12 of 32 sessions are free, and one step plays 32 at once." in short.message
    assert short.offer is not None and short.offer.more == 3  # 20 more sessions of 8 a replica
    button = client_for(bob).post(
        reverse("environment-scale", args=[project.slug, environment.pk]) + "?part=preflight",
        {"add": short.offer.more}, headers={"hx-request": "true"},
    )  # fmt: skip
    environment.refresh_from_db()
    assert button.status_code == 200 and "5 replicas are wanted now." in button.content.decode()
    assert environment.wanted == 5
    for number in (3, 4, 5, 6):
        environment.replicas.create(number=number, url=f"http://127.0.0.1:{9000 + number}", state="healthy")
    room = next(item for item in preflight(project, config).checks if item.title == "Environment server")
    assert room.ok and room.message == "6 replicas answer; 36 of 96 sessions are free, 32 are needed."


def test_a_server_that_does_not_answer_takes_no_room(
    launch: Callable[..., Environment], serve: Callable[..., None], project: Project
) -> None:
    serve(EnvironmentTimeout("The server did not answer in time."))
    _answering(launch(), 2)
    found = environment_named(project, "mine")
    assert found is not None
    room = room_of(found)
    assert (room.answering, room.asked, room.free) == (0, 2, None) and room.problem is not None


# --- Figures ----------------------------------------------------------------------------------------------------------
def test_samples_sum_replicas_and_count_new_errors(launch: Callable[..., Environment], project: Project) -> None:
    environment, watch = launch(wanted=2), Watch()
    loads = [{"steps": 9, "steps_per_s": 2.5, "p50_ms": 3.0, "p95_ms": 9.0, "errors": {"BAD": 2}}, None]
    for number, load in enumerate(loads, 1):
        environment.replicas.create(number=number, url=f"http://127.0.0.1:{number}", state="healthy",
                                    health=HEALTH | {"load": load})  # fmt: skip

    def sample(**errors: int) -> Any:
        environment.replicas.filter(number=1).update(health=HEALTH | {"load": loads[0] | {"errors": errors}})  # type: ignore[operator]
        found = environment_named(project, "mine")
        assert found is not None
        watch._sample(found)
        return environment.samples.order_by("-pk")[0]

    first = sample(BAD=2)
    assert (first.sessions, first.slots, first.steps_per_s, first.p95_ms) == (20, 32, 2.5, 9.0)
    assert first.errors == {}  # counted before we looked
    assert sample(BAD=5, FULL=1).errors == {"BAD": 3, "FULL": 1}
    assert sample(BAD=1).errors == {"BAD": 1}  # the server began anew
    watch.close()


def test_history_is_thinned_keeps_gaps_and_forgets(launch: Callable[..., Environment]) -> None:
    environment, now = launch(), timezone.now()
    for minute in range(1200):
        environment.samples.create(at=now - timedelta(minutes=minute), sessions=None if minute > 900 else minute,
                                   errors={"BAD": 1})  # fmt: skip
    environment.samples.create(at=now - timedelta(hours=25), sessions=99_999)
    shown = history(environment)
    assert len(shown["at"]) == 400 and sum(shown["errors"]["BAD"]) == 1200
    assert max(value for value in shown["sessions"] if value is not None) == 900 and shown["sessions"][0] is None
    assert samples_prune() == 1 and environment.samples.count() == 1200


def test_the_list_sums_and_names_baselines(
    project: Project, rita: User, client_for: Callable[..., Client], launch: Callable[..., Environment]
) -> None:
    rules = {"name": "rules", "reward": 0.791, "success": 0.58, "episodes": 300}
    environment = launch(wanted=3)
    Environment.objects.filter(pk=environment.pk).update(health=HEALTH | {"baselines": [rules]}, healthy=True)
    _answering(environment, 2)
    found = environment_named(project, "mine")
    assert found is not None
    view = health_view(found)
    assert (view.state, view.sessions, view.slots, view.healthy, view.replicas) == ("degraded", 20, 32, 2, 3)
    page = client_for(rita).get(reverse("environment-list", args=[project.slug])).content.decode()
    assert "rules: 0.79 mean, 58% success over 300 episodes" in page and "2 / 3" in page


def test_logs_are_text_whatever_they_hold(
    project: Project, rita: User, client_for: Callable[..., Client], launch: Callable[..., Environment]
) -> None:
    environment = launch()
    environment.replicas.create(number=1)
    log = environment_dir(environment.pk) / "replica-1.log"
    log.write_text("<script>alert(1)</script>\nAuthorization: Bearer abcdef123456\n" + "x" * 5000 + "\n")
    address = reverse("environment-log", args=[project.slug, environment.pk, 1])
    page = client_for(rita).get(address).content.decode()
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page and "abcdef123456" not in page
    assert "x" * 1001 not in page
    missing = reverse("environment-log", args=[project.slug, environment.pk, 2])
    assert client_for(rita).get(missing).status_code == 404


def test_baselines_at_launch_stay_with_the_run(
    project: Project, bob: User, client_for: Callable[..., Client], make_environment: Any, make_dataset: Any
) -> None:
    from webapp.runs.services import run_create

    rules = {"name": "rules", "reward": 0.791, "success": 0.58, "episodes": 300}
    environment = make_environment(health={"baselines": [rules]})
    run = run_create(project=project, user=bob, name="r", config=_job(make_dataset, environment))
    Environment.objects.update(health={})
    run.refresh_from_db()
    assert run.baselines == [rules]
    page = client_for(bob).get(reverse("run-detail", args=[project.slug, run.pk]))
    assert "Baseline rules: reward 0.79, success 58%" in page.content.decode()
    assert page.context["data"]["baselines"]["rollouts/task_success"] == [{"name": "rules", "y": 0.58}]
