"""A command with the embedded PostgreSQL of a data folder: backups, restores and migrations while `up` is stopped.

While `up` runs, its server is used; else one is started for as long as the command lasts, with the folder's lock held
so that no `up` begins meanwhile.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from webapp.common.env import PARAMETERS, database_parameters, env_str
from webapp.common.host import postgres_bin, postgres_prepare, postgres_wait, service_start

STOP_LIMIT_S = 60


def run_beside(data: Path, command: list[str]) -> int:
    """Run a command that finds the database in its environment; its exit code."""
    with database(data) as url:
        return subprocess.run(command, env=postgres_env(url)).returncode


@contextmanager
def database(data: Path) -> Iterator[str]:
    """The URL of the installation's database, which answers as long as this lasts."""
    if url := env_str("DATABASE_URL"):
        yield url
        return
    handle = os.open(data / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(handle, "r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield json.loads((data / "services.json").read_text(encoding="utf-8"))["database_url"]
            return
        yield from _run_server(data)


def _run_server(data: Path) -> Iterator[str]:
    """The folder's own server as our child; it dies with us."""
    service = postgres_prepare(data / "postgres")
    (data / "logs").mkdir(mode=0o700, exist_ok=True)
    child = service_start(service, data / "logs" / "postgres.log")
    try:
        postgres_wait(service, alive=lambda: child.poll() is None)
        yield service.url
    finally:
        child.send_signal(service.stop_signal)
        child.wait(timeout=STOP_LIMIT_S)


def postgres_env(url: str) -> dict[str, str]:
    """Our environment for a child that speaks to this database; PostgreSQL's own programs are on its path."""
    parts = urlsplit(url)
    env = {
        **os.environ,
        "DATABASE_URL": url,
        "PGHOST": parse_qs(parts.query).get("host", [parts.hostname or ""])[0],
        "PGPORT": str(parts.port or 5432),
        "PGUSER": unquote(parts.username or ""),
        "PGPASSWORD": unquote(parts.password or ""),
        "PGDATABASE": parts.path.lstrip("/"),
        **{PARAMETERS[name]: value for name, value in database_parameters(url).items()},
    }
    env["PATH"] = f"{postgres_bin()}{os.pathsep}{env.get('PATH', os.defpath)}"
    return env
