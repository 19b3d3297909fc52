"""The data folder of `manage.py up` becomes one that can only be read, and can be written again."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from tests.disks import read_only
from tests.webapp.ops.test_full_disk import asked, disk, runs, wait_all_succeed
from tests.webapp.ops.test_up import Upped
from webapp.common.host import free_port

__all__ = ["disk"]
READ_ONLY_S = 90.0


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_a_folder_that_can_only_be_read_ends_nothing_and_everything_continues_by_itself(disk: Path) -> None:
    """As a volume that its server gives read-only: what PostgreSQL has open stays writable, all others meet EROFS."""
    one = Upped(disk / "data", free_port(), "--demo")
    address = f"http://127.0.0.1:{one.port}"
    try:
        one.wait_ready()
        one.wait_for(lambda: any(step >= 3 and state == "running" for state, step in runs(one).values()), 600)
        with read_only(disk):
            until, paused, reported = time.monotonic() + READ_ONLY_S, False, False
            while time.monotonic() < until or not (paused and reported):
                assert one.process.poll() is None, one.output
                assert httpx.get(f"{address}/login/", timeout=30).status_code == 200
                reported = reported or httpx.get(f"{address}/readyz", timeout=30).json()["disk"] is False
                paused = paused or any(state == "paused" for state, _step in runs(one).values())
                assert "failed" not in {state for state, _step in runs(one).values()}, runs(one)
                assert time.monotonic() < until + 300, (runs(one), one.output)
                time.sleep(2)
        assert "was started again" not in one.output, one.output
        wait_all_succeed(one)
        codes = asked(one, "SELECT payload->'error'->>'code' FROM runs_runevent WHERE payload->>'to' = 'paused'")
        assert codes and set(codes) == {("storage_failed",)}, codes
        assert one.output.count("Running processes continue.") == 1, one.output
        assert one.stop() == 0
    finally:
        if one.process.poll() is None:
            one.stop()
