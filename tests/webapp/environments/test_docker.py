"""The Docker launcher against a real engine. Needs the image ``tiltyard-env-tools`` on it; skipped without."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from training.errors import TiltyardError
from webapp.common.storage import environments_dir
from webapp.environments.checks import ask, validation_of
from webapp.environments.launchers import DockerLauncher, LaunchError
from webapp.environments.models import Environment, Kind
from webapp.environments.services import environment_launch, server_of
from webapp.people.teams.models import Project, User

pytestmark = pytest.mark.docker
IMAGE = "tiltyard-env-tools"
LIMIT_S = 60.0


@pytest.fixture
def launcher() -> Iterator[DockerLauncher]:
    made = DockerLauncher()
    try:
        made.list_owned()
    except LaunchError as exc:
        pytest.skip(exc.message)
    found = subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, timeout=30)
    if found.returncode:
        pytest.skip(f"there is no image {IMAGE}; build it first")
    yield made
    for one in made.list_owned():
        made.stop(one.handle, force=True)


@pytest.fixture
def environment(project: Project, bob: User) -> Environment:
    values = {"name": "boxed", "kind": Kind.DOCKER, "image": IMAGE, "slots": 4, "memory_mb": 512}
    return environment_launch(project=project, user=bob, **values)  # type: ignore[arg-type]


def _answer(environment: Environment, url: str) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return ask(server_of(environment, url))
        except TiltyardError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)


def test_a_container_is_confined_answers_and_ends(launcher: DockerLauncher, environment: Environment) -> None:
    import docker

    replica = environment.replicas.create(number=1)
    started = launcher.start(replica)
    replica.url, replica.handle = started.url, started.handle
    replica.save()
    assert started.url.startswith("http://127.0.0.1:") and launcher.alive(started.handle)
    assert _answer(environment, started.url).slots == 4
    assert validation_of(server_of(environment, started.url)).ok  # with the token from its file
    attributes = docker.from_env().containers.get(started.handle["container"]).attrs
    host = attributes["HostConfig"]
    assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and host["PidsLimit"] == 128
    assert host["SecurityOpt"] == ["no-new-privileges:true"] and host["Memory"] == 512 << 20
    assert host["NanoCpus"] == 10**9 and host["RestartPolicy"]["Name"] in ("", "no")
    bindings = [binding for found in host["PortBindings"].values() for binding in found]
    assert [binding["HostIp"] for binding in bindings] == ["127.0.0.1"]
    assert [(one.environment_id, one.number) for one in launcher.list_owned()] == [(str(environment.pk), 1)]
    assert any("server.listening" in line for line in launcher.logs(replica))
    note = environments_dir() / "installation"
    ours = note.read_text()
    note.write_text(f"{ours.split()[0]} 1:2")  # as a copy of the data folder finds it
    launcher.stop(started.handle, force=True)
    assert not launcher.alive(started.handle) and launcher.list_owned() == []
    note.write_text(ours)
    assert launcher.alive(started.handle)
    again = launcher.start(replica)
    assert again.url == started.url and not launcher.alive(started.handle)
    launcher.stop(again.handle, force=True)
    assert launcher.list_owned() == [] and not launcher.alive(again.handle)


def test_a_missing_image_is_a_sentence(launcher: DockerLauncher, environment: Environment) -> None:
    environment.image = "tiltyard-env-that-nobody-built"
    replica = environment.replicas.create(number=1)
    replica.environment = environment
    with pytest.raises(LaunchError, match="not on this machine"):
        launcher.start(replica)
