"""The commands of docs/operations.md: a backup of the embedded database is restored elsewhere, with `up` stopped."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from webapp.ops.database import database as database_of
from webapp.ops.database import postgres_env

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folders() -> Iterator[tuple[Path, Path]]:
    """Two data folders with paths short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="tt-") as first, tempfile.TemporaryDirectory(prefix="tt-") as second:
        yield Path(first), Path(second)


def database(data: Path, *command: str, fails: bool = False) -> str:
    env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    argv = [sys.executable, "manage.py", "database", *command]
    env |= {"TILTYARD_DATA_DIR": str(data)}
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode != 0) == fails, done.stderr[-2000:]
    return done.stdout if not fails else done.stderr


def test_a_backup_is_restored_into_an_empty_folder(folders: tuple[Path, Path]) -> None:
    old, new = folders
    dump = str(old / "tiltyard.dump")
    database(old, "psql", "--command", "CREATE TABLE kept AS SELECT 7 AS value")
    assert not (old / "postgres" / "data" / "postmaster.pid").exists(), "the server ends with its command"
    database(old, "pg_dump", "--format", "custom", "--file", dump)
    database(new, "pg_restore", "--no-owner", "--exit-on-error", "--dbname", "tiltyard", dump)
    assert database(new, "psql", "--tuples-only", "--no-align", "--command", "SELECT value FROM kept") == "7\n"


def test_the_exit_code_is_the_commands_and_no_command_is_a_sentence(folders: tuple[Path, Path]) -> None:
    assert "Name a command" in database(folders[0], fails=True)
    assert "does not exist" in database(folders[0], "psql", "--command", "SELECT 1 FROM nothing", fails=True)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        (
            "postgresql://u%40x:p%2Fw@db.internal:6543/site?sslmode=verify-full",
            {"HOST": "db.internal", "PORT": "6543", "USER": "u@x", "PASSWORD": "p/w", "DATABASE": "site"},
        ),
        (
            "postgresql://postgres:p@/tiltyard?host=/data/postgres",
            {"HOST": "/data/postgres", "PORT": "5432", "USER": "postgres", "PASSWORD": "p", "DATABASE": "tiltyard"},
        ),
    ],
)
def test_a_program_of_postgresql_finds_the_database(
    url: str, found: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usual")
    env = postgres_env(url)
    assert {name: env[f"PG{name}"] for name in found} == found and env["DATABASE_URL"] == url
    assert env.get("PGSSLMODE") == ("verify-full" if "sslmode" in url else None)
    assert env["PATH"].endswith(f"bin{os.pathsep}/usual")


def test_the_server_that_runs_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That of the address, else that of a folder on which `up` is at work."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/site")
    with database_of(tmp_path) as url:
        assert url == "postgresql://elsewhere/site" and list(tmp_path.iterdir()) == []
    monkeypatch.delenv("DATABASE_URL")
    (tmp_path / "services.json").write_text(json.dumps({"database_url": "postgresql://of-up"}))
    with open(tmp_path / "up.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with database_of(tmp_path) as url:
            assert url == "postgresql://of-up"
