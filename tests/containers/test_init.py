"""`make compose-init`, and the signs of life that healthchecks look at."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis
from celery.signals import heartbeat_sent, worker_ready
from celery.worker.heartbeat import Heart
from django.apps import apps

from tests.chaos.services import wait_until
from tests.processes import running
from webapp.common import host
from webapp.common.env import database_from_url
from webapp.common.host import free_port, redis_bin
from webapp.ops.compose import DEFAULTS, SECRETS, compose_init, env_read


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_makes_each_secret_once(tmp_path: Path) -> None:
    assert compose_init(tmp_path) == [*DEFAULTS, *SECRETS]
    first = (tmp_path / ".env").read_text()
    values = env_read(first)
    assert len({values[name] for name in SECRETS}) == len(SECRETS)
    assert all(len(values[name]) >= 50 for name in SECRETS)
    assert mode(tmp_path / ".env") == 0o600
    assert compose_init(tmp_path) == []
    assert (tmp_path / ".env").read_text() == first


def test_what_is_there_stays(tmp_path: Path) -> None:
    before = "# ours\nexport POSTGRES_PASSWORD='mine'\nTILTYARD_PORT=9000\nCOMPOSE_PROFILES=\nREDIS_PASSWORD="
    (tmp_path / ".env").write_text(before)
    (tmp_path / ".env").chmod(0o644)
    added = compose_init(tmp_path)
    text = (tmp_path / ".env").read_text()
    assert text.startswith(before + "\n") and mode(tmp_path / ".env") == 0o600
    values = env_read(text)
    assert (values["POSTGRES_PASSWORD"], values["TILTYARD_PORT"], values["COMPOSE_PROFILES"]) == ("mine", "9000", "")
    assert "REDIS_PASSWORD" in added and len(values["REDIS_PASSWORD"]) >= 50
    assert "POSTGRES_PASSWORD" not in added and "COMPOSE_PROFILES" not in added


def test_the_files_follow_env_and_are_closed_by_their_folder(tmp_path: Path) -> None:
    compose_init(tmp_path)
    folder, values = tmp_path / ".secrets", env_read((tmp_path / ".env").read_text())
    read = {path.name: path.read_text() for path in folder.iterdir()}
    digest = hashlib.sha256(values["REDIS_PASSWORD"].encode()).hexdigest()
    assert read == {
        "database_url": f"postgresql://tiltyard:{values['POSTGRES_PASSWORD']}@postgres:5432/tiltyard",
        "postgres_password": values["POSTGRES_PASSWORD"],
        "redis_url": f"redis://tiltyard:{values['REDIS_PASSWORD']}@redis:6379/0",
        "redis_users": f"user default off\nuser tiltyard on #{digest} ~* &* +@all -@admin\n",
        "tiltyard_env_token": values["TILTYARD_ENV_TOKEN"],
        "tiltyard_files_secret": "",
        "tiltyard_metrics_token": values["TILTYARD_METRICS_TOKEN"],
        "tiltyard_secret_key": values["TILTYARD_SECRET_KEY"],
        "vllm_api_key": values["VLLM_API_KEY"],
    }
    assert {mode(path) for path in folder.iterdir()} == {0o444} and mode(folder) == 0o700
    (tmp_path / ".env").write_text("TILTYARD_ENV_TOKEN=another-token-of-the-operator\nPOSTGRES_PASSWORD=a/b@c:d\n")
    compose_init(tmp_path)
    assert (folder / "tiltyard_env_token").read_text() == "another-token-of-the-operator"
    assert database_from_url((folder / "database_url").read_text())["PASSWORD"] == "a/b@c:d"
    assert {mode(path) for path in folder.iterdir()} == {0o444}


def test_the_folder_of_the_files_is_the_operators(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"TILTYARD_SECRETS={tmp_path}/elsewhere\n")
    compose_init(tmp_path)
    assert (tmp_path / "elsewhere/redis_users").is_file() and not (tmp_path / ".secrets").exists()


def test_the_broker_takes_the_user_of_the_file_and_no_other(tmp_path: Path) -> None:
    """On a real Redis: the password's digest lets in clients with the password, and none without one."""
    compose_init(tmp_path)
    port = free_port()
    argv = [redis_bin(), "--port", str(port), "--save", "", "--aclfile", str(tmp_path / ".secrets/redis_users")]
    url = (tmp_path / ".secrets/redis_url").read_text().replace("@redis:6379", f"@127.0.0.1:{port}")
    with running(argv, tmp_path / "log", dict(os.environ)), redis.Redis.from_url(url) as client:
        wait_until(lambda: answers(client), 20)
        assert client.set("a", "b")
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.config_get("*")
        with redis.Redis(port=port, protocol=2) as stranger, pytest.raises(redis.AuthenticationError, match="required"):
            stranger.ping()


def answers(client: redis.Redis) -> bool:
    """Whether it is up."""
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_a_process_that_works_keeps_its_file_young(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "worker"
    monkeypatch.setenv(host.READY_VARIABLE, str(file))
    host.say_alive()
    assert not file.exists(), "it does not say that it is ready by that"
    host.say_ready()
    os.utime(file, (1, 1))
    host.say_alive()
    assert time.time() - file.stat().st_mtime < 60


def test_each_heartbeat_of_a_celery_worker_touches_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery looks for listeners when it makes a ``Heart``, which is before the worker is ready."""
    file = tmp_path / "worker"
    monkeypatch.setenv(host.READY_VARIABLE, str(file))
    sent: list[str] = []
    heartbeat_sent.disconnect(host.say_alive, dispatch_uid="ops.heartbeat_sent")
    apps.get_app_config("ops").ready()
    eventer = SimpleNamespace(on_enabled=set(), on_disabled=set(), send=lambda event, **_facts: sent.append(event))
    heart = Heart(timer=None, eventer=eventer)
    worker_ready.send(sender=None)
    assert file.read_text() == str(os.getpid())
    os.utime(file, (1, 1))
    heart._send("worker-heartbeat")
    assert sent == ["worker-heartbeat"] and time.time() - file.stat().st_mtime < 60
