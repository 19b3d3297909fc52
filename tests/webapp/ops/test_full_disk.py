"""Everything of `manage.py up` on one small disk, which fills up and has room again."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, LiteralString

import httpx
import psycopg
import pytest

from tests.disks import small_disk
from tests.webapp.ops.test_up import Upped
from webapp.common.host import free_port

DISK = "1500m"
FULL_S = 90.0


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small one; not below pytest's folders, which PostgreSQL's user may not pass through."""
    folder = Path(tempfile.mkdtemp(prefix="tiltyard-tests-"))
    with small_disk(folder, DISK):
        yield folder
    folder.rmdir()


def asked(one: Upped, query: LiteralString) -> list[tuple[Any, ...]]:
    """Rows of its database; none while that is away."""
    url = json.loads((one.data / "services.json").read_text())["database_url"]
    try:
        with psycopg.connect(url, connect_timeout=5) as database:
            return database.execute(query).fetchall()
    except psycopg.Error:
        return []


def runs(one: Upped) -> dict[str, tuple[str, int]]:
    """State and step of each run, by name."""
    return {name: (state, step) for name, state, step in asked(one, "SELECT name, state, step FROM runs_run")}


def fill(folder: Path) -> Path:
    """Leave no byte free."""
    path = folder / "fill"
    with path.open("wb") as file, pytest.raises(OSError):
        while True:
            file.write(b"0" * (1 << 20))
            file.flush()
    return path


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_a_full_disk_ends_nothing_and_everything_continues_by_itself(disk: Path) -> None:
    one = Upped(disk / "data", free_port(), "--demo")
    try:
        one.wait_ready()
        services = {known for known in one.family() if known.name in {"postgres", "redis-server", "supervisord"}}
        one.wait_for(lambda: any(step >= 3 and state == "running" for state, step in runs(one).values()), 600)
        filling, until = fill(disk), time.monotonic() + FULL_S
        while time.monotonic() < until:
            assert one.process.poll() is None, one.output
            answer = httpx.get(f"http://127.0.0.1:{one.port}/login/", timeout=30)
            assert answer.status_code in {200, 503}
            time.sleep(2)
        assert {known for known in services if known.process()}, "the services go on, or come again"
        filling.unlink()
        wait_all_succeed(one)
        codes = asked(one, "SELECT payload->'error'->>'code' FROM runs_runevent WHERE payload->>'to' = 'paused'")
        assert codes and set(codes) == {("storage_full",)}, codes
        log = (one.data / "logs" / "worker-train.log").stat()
        assert log.st_mtime > time.time() - 300, "its log is written again"
        assert one.output.count("Running processes continue.") <= 2, one.output
        assert one.stop() == 0
    finally:
        if one.process.poll() is None:
            one.stop()


def wait_all_succeed(one: Upped) -> None:
    """Without anybody's hand."""
    done: Callable[[], bool] = lambda: {state for state, _step in runs(one).values()} == {"succeeded"}  # noqa: E731
    one.wait_for(done, 600)
