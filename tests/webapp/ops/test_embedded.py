"""The embedded services, started and ended without a process manager."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from webapp.common.host import Embedded, memory_options, postgres_prepare, redis_prepare
from webapp.ops.catalogues import catalogues_compile

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: unix sockets have a limit."""
    path = Path(tempfile.mkdtemp(prefix="tiltyard-tests-"))
    yield path
    shutil.rmtree(path)


def test_data_survive_a_restart(folder: Path) -> None:
    services = Embedded(folder, durable=True)
    services.start()
    try:
        with psycopg.connect(services.database_url) as connection:
            connection.execute("CREATE TABLE keep AS SELECT 7 AS number")
        with redis.Redis.from_url(services.redis_url) as client:
            client.set("keep", "8")
        address, port = services.database_url, services.redis_url
        services.stop()
        services.start()
        assert (services.database_url, services.redis_url) == (address, port)
        with psycopg.connect(services.database_url) as connection:
            assert connection.execute("SELECT number FROM keep").fetchone() == (7,)
            shown = connection.execute("SELECT pg_size_bytes(current_setting('shared_buffers'))").fetchone()
            assert shown == (int(memory_options(psutil.virtual_memory().total)["shared_buffers"][:-2]) << 20,)
        with redis.Redis.from_url(services.redis_url) as client:
            assert client.get("keep") is None, "it writes nothing: on a full disk it would refuse everything"
            assert client.config_get("appendonly")["appendonly"] == "no"
            assert client.config_get("stop-writes-on-bgsave-error")["stop-writes-on-bgsave-error"] == "no"
    finally:
        services.stop()


@pytest.mark.parametrize(
    ("gib", "shared", "cache", "maintenance", "work"),
    [
        (1, 128, 512, 64, 4),
        (24, 768, 6144, 384, 12),
        (64, 2048, 16_384, 1024, 32),
        (1024, 4096, 65_536, 1024, 32),
    ],
)
def test_postgres_takes_a_small_part_of_the_machines_memory(
    gib: int, shared: int, cache: int, maintenance: int, work: int
) -> None:
    expected = {"shared_buffers": shared, "effective_cache_size": cache}
    expected |= {"maintenance_work_mem": maintenance, "work_mem": work}
    assert memory_options(gib << 30) == {name: f"{mb}MB" for name, mb in expected.items()}


def test_postgres_wants_its_password(folder: Path) -> None:
    services = Embedded(folder)
    services.start()
    try:
        url = services.database_url
        password = url.split(":")[2].split("@")[0]
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(url.replace(password, "guess")).close()
        assert stat.S_IMODE((folder / "postgres").stat().st_mode) == 0o700
    finally:
        services.stop()


def test_a_path_too_long_for_a_socket_uses_loopback(folder: Path) -> None:
    services = Embedded(folder / ("long-" * 20))
    services.folder.mkdir()
    services.start()
    try:
        assert "@127.0.0.1:" in services.database_url
        psycopg.connect(services.database_url).close()
    finally:
        services.stop()


def test_a_stale_pid_file_and_half_a_cluster_do_not_matter(folder: Path) -> None:
    place = folder / "postgres"
    (place / "data.new").mkdir(parents=True)
    (place / "data.new" / "PG_VERSION").write_text("18")
    services = Embedded(folder)
    services.start()
    services.stop()
    (place / "data" / "postmaster.pid").write_text(f"{os.getpid()}\n{place}/data\n0\n5432\n\n\n")
    services.start()
    services.stop()


def test_a_taken_redis_port_is_replaced(folder: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        (folder / "redis").mkdir()
        (folder / "redis" / "port").write_text(str(taken.getsockname()[1]))
        assert str(taken.getsockname()[1]) not in redis_prepare(folder / "redis").url


def test_no_secret_on_a_command_line(folder: Path) -> None:
    for service in (postgres_prepare(folder / "postgres", durable=False), redis_prepare(folder / "redis")):
        secret = (service.folder / "password").read_text()
        assert secret in service.url
        assert not any(secret in argument for argument in service.argv)


@pytest.mark.chaos
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_services_die_with_a_killed_owner(folder: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from webapp.common.host import Embedded;"
        "Embedded(Path(sys.argv[1])).start(); print('up', flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, str(folder)], cwd=ROOT, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"up\n"
    children = psutil.Process(owner.pid).children(recursive=True)
    assert len(children) > 2
    owner.send_signal(signal.SIGKILL)
    owner.wait(timeout=5)
    deadline = time.monotonic() + 10
    while any(child.is_running() and child.status() != "zombie" for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_catalogues_are_compiled_when_they_changed(tmp_path: Path) -> None:
    place = tmp_path / "zh_Hans" / "LC_MESSAGES"
    place.mkdir(parents=True)
    (place / "django.po").write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "run"\nmsgstr "训练任务"\n'
    )
    assert catalogues_compile(tmp_path) == [place / "django.mo"]
    assert catalogues_compile(tmp_path) == []
    os.utime(place / "django.po", (time.time() + 5, time.time() + 5))
    assert catalogues_compile(tmp_path) == [place / "django.mo"]
