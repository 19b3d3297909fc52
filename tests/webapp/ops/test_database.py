"""The commands of docs/operations.md: a backup of the embedded database is restored elsewhere, with `up` stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

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
