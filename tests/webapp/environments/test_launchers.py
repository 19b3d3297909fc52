"""Where a server that the keeper starts listens, and by what address others reach it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from webapp.common.host import free_port
from webapp.common.storage import replica_log
from webapp.environments import launchers
from webapp.environments.launchers import (
    LaunchError,
    ProcessLauncher,
    _container_limits,
    _cut_log,
    _exposed_port,
    place_for,
)
from webapp.environments.models import Environment, Kind, Replica
from webapp.environments.services import environment_launch
from webapp.environments.tokens import token_of
from webapp.people.teams.models import Project, User

pytestmark = pytest.mark.django_db
Launch = Callable[..., Environment]


@pytest.fixture
def ports(settings: Any) -> range:
    """Three ports that are free now are those that servers may have."""
    while True:
        first = free_port()
        found = range(first, first + 3)
        if found.stop <= 65536 and all(free_port(port, "0.0.0.0") == port for port in found):
            settings.REPLICA_PORTS = found
            return found


def replica(environment: Environment, number: int, **fields: Any) -> Replica:
    return Replica.objects.create(environment=environment, number=number, **fields)


def test_by_default_a_server_listens_on_loopback_and_keeps_its_port(launch: Launch) -> None:
    place = place_for(replica(launch(), 1))
    assert (place.listens, place.name) == ("127.0.0.1", "127.0.0.1") and 1024 <= place.port < 65536
    assert place.url == f"http://127.0.0.1:{place.port}"
    assert place_for(Replica(environment=launch(name="again"), url=place.url)).port == place.port


def test_ports_are_given_in_order_and_never_twice(launch: Launch, ports: range) -> None:
    environment = launch()
    first, second, third = (replica(environment, number) for number in (1, 2, 3))
    for row, port in zip((first, second, third), ports, strict=True):
        assert place_for(row).port == port
        row.url = f"http://127.0.0.1:{port}"
        row.save()  # it does not listen yet
    assert place_for(third).port == ports[2], "its own"
    with pytest.raises(LaunchError, match=f"All 3 ports for servers are taken: {ports[0]} to {ports[2]}") as caught:
        place_for(replica(environment, 4))
    assert "TILTYARD_REPLICA_PORTS" in caught.value.hint
    second.delete()
    assert place_for(replica(environment, 5)).port == ports[1]


def test_a_port_of_another_program_is_passed_over(launch: Launch, ports: range) -> None:
    mine = replica(launch(), 1, url=f"http://127.0.0.1:{ports[0]}")
    with closing(socket.create_server(("127.0.0.1", ports[0]))):
        assert place_for(mine).port == ports[1]
    assert place_for(mine).port == ports[0]


def test_a_port_that_is_taken_at_another_address_of_this_host_is_passed_over_where_others_reach_it(
    launch: Launch, ports: range, settings: Any
) -> None:
    mine = replica(launch(), 1)
    with closing(socket.create_server(("127.0.0.3", ports[0]))):
        assert place_for(mine).port == ports[0], "it listens on 127.0.0.1 alone"
        settings.REPLICA_HOST = "127.0.0.3"
        assert place_for(mine).port == ports[1]


def test_a_port_of_the_range_is_kept_before_those_that_are_free_too(launch: Launch, ports: range) -> None:
    mine = replica(launch(), 1, url=f"http://127.0.0.1:{ports[1]}")
    assert place_for(mine).port == ports[1]


def test_a_port_outside_of_the_range_is_not_kept(launch: Launch, ports: range) -> None:
    mine = replica(launch(), 1, url=f"http://127.0.0.1:{ports[0] - 1}")
    assert place_for(mine).port == ports[0]


def test_the_port_of_a_server_elsewhere_counts_for_nothing(launch: Launch, ports: range, project: Project) -> None:
    away = Environment.objects.create(project=project, name="away", kind=Kind.URL, url=f"http://192.0.2.7:{ports[0]}")
    replica(away, 1, url=away.url)
    assert place_for(replica(launch(), 1)).port == ports[0]


@pytest.mark.parametrize(
    ("image", "protocol", "listens"),
    [
        ("tiltyard-env-tools", "openenv", "0.0.0.0"),
        ("tiltyard-env-foreign", "openenv", "127.0.0.1"),  # none of our servers: nothing says that it asks for a token
        ("tiltyard-env-tools", "envtuning", "127.0.0.1"),
    ],
)
def test_images_of_others_stay_on_loopback(
    project: Project, bob: User, settings: Any, image: str, protocol: str, listens: str
) -> None:
    settings.REPLICA_HOST = "10.8.0.1"
    fields = {"name": "boxed", "kind": Kind.DOCKER, "image": image, "protocol": protocol, "slots": 4}
    place = place_for(replica(environment_launch(project=project, user=bob, **fields), 1))  # type: ignore[arg-type]
    assert (place.listens, place.name) == (listens, "10.8.0.1" if listens == "0.0.0.0" else "127.0.0.1")


@pytest.fixture
def launcher() -> Iterator[ProcessLauncher]:
    made = ProcessLauncher()
    yield made
    for one in made.list_owned():
        made.stop(one.handle, force=True)


def test_other_hosts_reach_our_server_by_its_name_and_with_its_token(
    launch: Launch, launcher: ProcessLauncher, ports: range, settings: Any
) -> None:
    settings.REPLICA_HOST = "127.0.0.3"  # another address of this host
    mine = replica(launch(), 1)
    started = launcher.start(mine)
    assert started.url == f"http://127.0.0.3:{ports[0]}"
    deadline = time.monotonic() + 60
    while True:
        try:
            assert httpx.get(f"{started.url}/health").status_code == 200
            break
        except httpx.ConnectError:
            assert time.monotonic() < deadline and launcher.alive(started.handle), launcher.logs(mine)
            time.sleep(0.1)
    assert httpx.get(f"{started.url}/validate").status_code == 401
    token = {"Authorization": f"Bearer {token_of(mine.environment_id)}"}
    assert httpx.get(f"{started.url}/validate", headers=token, timeout=60).json()["ok"] is True
    process = psutil.Process(started.handle["pid"])
    assert process.rlimit(psutil.RLIMIT_DATA) == (1024 << 20, 1024 << 20)
    assert process.rlimit(psutil.RLIMIT_NOFILE) == (528, 528), "two for each of 8 sessions, and 512"
    assert process.rlimit(psutil.RLIMIT_CORE) == (0, 0) and len(process.cpu_affinity()) == 1
    assert replica_log(mine.environment_id, 1).parent.stat().st_mode & 0o777 == 0o700
    launcher.stop(started.handle, force=True)
    assert not launcher.alive(started.handle) and not psutil.pid_exists(process.pid)


@pytest.mark.parametrize(("size", "left"), [(1000, 1000), (1001, 100)])
def test_of_a_log_that_grew_too_large_the_end_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, left: int
) -> None:
    monkeypatch.setattr(launchers, "MAX_LOG_BYTES", 1000)
    monkeypatch.setattr(launchers, "LOG_BYTES", 100)
    log = tmp_path / "replica.log"
    log.write_bytes(bytes(number % 251 for number in range(size)))
    _cut_log(log)
    assert log.read_bytes() == bytes(number % 251 for number in range(size - left, size))
    _cut_log(tmp_path / "none.log")


def test_a_container_has_the_limits_of_its_environment() -> None:
    limits = _container_limits(Environment(cpus=1.5, memory_mb=512, pids=64))
    assert {name: limits[name] for name in ("nano_cpus", "mem_limit", "memswap_limit", "pids_limit")} == {
        "nano_cpus": 1_500_000_000, "mem_limit": "512m", "memswap_limit": "512m", "pids_limit": 64,
    }  # fmt: skip
    assert (limits["read_only"], limits["cap_drop"], limits["init"]) == (True, ["ALL"], True)
    assert limits["security_opt"] == ["no-new-privileges:true"] and limits["restart_policy"] == {"Name": "no"}


@pytest.mark.parametrize(
    ("ports", "found"),
    [(["8101/tcp"], "8101/tcp"), (["53/udp", "8101/tcp"], "8101/tcp"), (["1/tcp", "2/tcp"], ""), ([], ""), (None, "")],
)
def test_an_image_names_one_port(ports: list[str] | None, found: str) -> None:
    attributes = {"Config": {"ExposedPorts": None if ports is None else {port: {} for port in ports}}}
    if found:
        assert _exposed_port("shop", attributes) == found
        return
    with pytest.raises(LaunchError, match="The image “shop” does not say on which one port it listens"):
        _exposed_port("shop", attributes)
