"""`make compose-init`, and the signs of life that healthchecks look at."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from webapp.host import ready
from webapp.ops.compose import DEFAULTS, SECRETS, TOKEN_FILE, compose_init, env_read


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


def test_what_stands_there_stays(tmp_path: Path) -> None:
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


def test_the_tokens_file_follows_env_and_is_closed_by_its_folder(tmp_path: Path) -> None:
    compose_init(tmp_path)
    file = tmp_path / TOKEN_FILE
    assert file.read_text() == env_read((tmp_path / ".env").read_text())["TILTYARD_ENV_TOKEN"]
    assert (mode(file), mode(file.parent)) == (0o444, 0o700)
    (tmp_path / ".env").write_text("TILTYARD_ENV_TOKEN=another-token-of-the-operator\n")
    compose_init(tmp_path)
    assert (file.read_text(), mode(file)) == ("another-token-of-the-operator", 0o444)


def test_a_process_that_works_keeps_its_file_young(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "worker"
    monkeypatch.setenv(ready.READY_VARIABLE, str(file))
    ready.say_alive()
    assert not file.exists(), "it does not say that it is ready by that"
    ready.say_ready()
    os.utime(file, (1, 1))
    ready.say_alive()
    assert time.time() - file.stat().st_mtime < 60
