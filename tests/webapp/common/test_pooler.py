"""A pooler in front of PostgreSQL (``TILTYARD_DATABASE_POOL=0``): PgBouncer itself, where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from tests.chaos.services import RUN_AS, Postgres, wait_until
from tests.processes import running
from webapp.common.database import set_session
from webapp.common.host import free_port

LIMITS = {"statement_timeout": "15s", "lock_timeout": "5s", "idle_in_transaction_session_timeout": "30s", "jit": "off"}
LOOK = """
import django; django.setup()
from django.db import connection
with connection.cursor() as cursor:
    for name in {names!r}:
        cursor.execute(f"SHOW {{name}}")
        print(cursor.fetchone()[0])
"""


def limits_of(url: str, pool: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a program of ours that connects to this address finds on its connection, a line each."""
    surroundings = {"DATABASE_URL": url, "TILTYARD_DATABASE_POOL": pool, "TILTYARD_DATA_DIR": str(folder)}
    surroundings["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
    code = LOOK.format(names=list(LIMITS))
    argv, root = [sys.executable, "-c", code], settings.BASE_DIR
    return subprocess.run(argv, env=os.environ | surroundings, cwd=root, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("pool", ["0", "20"])
@pytest.mark.django_db
def test_a_connection_has_the_limits_with_and_without_a_pooler(pool: str, tmp_path: Path) -> None:
    found = limits_of(os.environ["DATABASE_URL"], pool, tmp_path)
    assert found.stdout.split() == list(LIMITS.values()), found.stderr


@pytest.mark.django_db
def test_the_limits_of_a_session_are_set_by_one_query(django_assert_num_queries: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '1s'")
    with django_assert_num_queries(1):
        set_session(connection=connection)
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("5s",)


@pytest.fixture
def bouncer(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """PgBouncer as its package sets it up, in the mode ``session``: a URL through it, and its log."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not on the PATH (Debian: apt-get install pgbouncer)")
    postgres, port = Postgres(tmp_path), free_port()
    postgres.start()
    config, log = postgres.data.parent / "pgbouncer.ini", tmp_path / "pgbouncer.log"
    config.write_text(
        f"[databases]\n* = host=127.0.0.1 port={postgres.port} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nauth_type = any\npool_mode = session\nunix_socket_dir =\n"
    )
    as_user = ["-u", RUN_AS] if os.geteuid() == 0 else []
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    try:
        with running([program, *as_user, str(config)], log):
            wait_until(lambda: psycopg.connect(url, connect_timeout=1).close() or True, 20, what="pgbouncer up")
            yield url, log
    finally:
        postgres.kill9()


def test_pgbouncer_takes_our_connections(bouncer: tuple[str, Path], tmp_path: Path) -> None:
    """It refused all of them, with ``TILTYARD_DATABASE_POOL=0`` too: they brought options."""
    url, log = bouncer
    through = limits_of(url, "0", tmp_path)
    assert through.stdout.split() == list(LIMITS.values()), through.stderr
    refused = limits_of(url, "20", tmp_path)
    assert "unsupported startup parameter: options" in refused.stderr + log.read_text()
    with psycopg.connect(url) as next_one:  # a session that ends takes its limits along
        assert next_one.execute("SHOW statement_timeout").fetchone() == ("0",)
