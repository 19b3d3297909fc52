"""The keeper with real servers: started, scaled, killed, restarted, ended without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.processes import port_is_free, running
from tests.servers import make_child_env
from webapp.common.storage import environment_dir, environments_dir, replica_log
from webapp.environments.models import Environment, Replica, ReplicaState
from webapp.environments.services import environment_delete, environment_launch, environment_restart, environment_scale
from webapp.environments.tokens import token_of, token_write
from webapp.people.teams.models import Project, User

pytestmark = pytest.mark.django_db(transaction=True)
LIMIT_S = 40.0
Keep = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Keep]:
    """``keep()``: a real keeper on this test's database, ended with the test."""
    with ExitStack() as stack:
        argv = [sys.executable, "manage.py", "keep_environments"]
        yield lambda: stack.enter_context(running(argv, tmp_path / "keeper.log", make_child_env()))
    assert [one for one in psutil.process_iter(["cmdline", "environ"]) if _is_ours(one)] == []


def _is_ours(process: psutil.Process) -> bool:
    """A server whose token lies in this test's data folder."""
    return any(str(environments_dir()) in word for word in process.info["cmdline"] or [])


@pytest.fixture
def launch(project: Project, bob: User) -> Callable[..., Environment]:
    def make(**over: Any) -> Environment:
        fields = {"kind": "process", "program": "tools", "slots": 8, "memory_mb": 768, "name": "mine"}
        return environment_launch(project=project, user=bob, **(fields | over))

    return make


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """The first true answer of the condition."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    states = list(Replica.objects.values_list("number", "state", "error"))
    pytest.fail(f"not within {LIMIT_S:g} s: {what}; replicas: {states}")


def healthy(environment: Environment, count: int) -> list[Replica] | None:
    rows = list(environment.replicas.all().order_by("number"))
    fine = len(rows) == count and all(row.state == ReplicaState.HEALTHY for row in rows)
    return rows if fine else None


def test_replicas_are_started_scaled_and_replaced(keep: Keep, launch: Callable[..., Environment]) -> None:
    """One journey, because each start of a server takes seconds of CPU."""
    environment = launch()
    keep()
    first = wait_for(lambda: healthy(environment, 1), "one healthy replica")[0]
    wait_for(lambda: Environment.objects.get(pk=environment.pk).healthy, "an environment that knows of it")
    environment.refresh_from_db()
    assert first.health["slots"] == 8 and environment.health["name"] == "tools"
    assert environment.job_values()["deterministic"] is True
    _require_confined(psutil.Process(first.handle["pid"]), environment)
    environment_scale(environment=environment, wanted=2)
    rows = wait_for(lambda: healthy(environment, 2), "two healthy replicas")
    environment = Environment.objects.filter(pk=environment.pk)[0]
    assert environment.job_values()["replicas"] == [rows[1].url]
    wait_for(lambda: Environment.objects.filter(pk=environment.pk)[0].validation, "its own proof")
    # Killed: the same address, one more restart, the other one untouched.
    os.kill(rows[0].handle["pid"], signal.SIGKILL)
    wait_for(lambda: environment.replicas.filter(number=1, restarts=1).exists(), "the death noticed")
    after = wait_for(lambda: healthy(environment, 2), "both healthy again")
    assert [row.url for row in after] == [row.url for row in rows]
    assert after[0].handle != rows[0].handle and after[1].handle == rows[1].handle and after[1].restarts == 0
    # None wanted: no process, no row.
    environment_scale(environment=environment, wanted=0)
    wait_for(lambda: not environment.replicas.exists(), "no replica")
    assert not any(psutil.pid_exists(row.handle["pid"]) for row in after)
    assert all(port_is_free(int(row.url.rpartition(":")[2])) for row in after)


def _require_confined(process: psutil.Process, environment: Environment) -> None:
    """A server knows no secret but the one in its file, is reached from this machine only, and has limits."""
    argv, folder = process.cmdline(), environment_dir(environment.pk)
    assert argv[argv.index("--host") + 1] == "127.0.0.1" and token_of(environment.pk) not in " ".join(argv)
    allowed = {
        "PATH",
        "HOME",
        "LANG",
        "TZ",
        "TMPDIR",
        "VIRTUAL_ENV",
        "LD_LIBRARY_PATH",
        "PYTHONPATH",
        "PYTHONUNBUFFERED",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MALLOC_ARENA_MAX",
        "LC_CTYPE",
    }
    assert set(process.environ()) <= allowed
    assert process.rlimit(psutil.RLIMIT_DATA) == (768 << 20, 768 << 20)
    assert folder.stat().st_mode & 0o777 == 0o700 and (folder / "token").stat().st_mode & 0o777 == 0o600
    assert replica_log(environment.pk, 1).stat().st_mode & 0o777 == 0o600


def test_a_server_that_keeps_dying_fails_with_its_last_words(keep: Keep, launch: Callable[..., Environment]) -> None:
    environment = launch(memory_mb=64)  # Python alone needs more
    token_write(environment.pk, "short")  # the server refuses a token below 16 characters, at once
    keep()
    wait_for(lambda: environment.replicas.filter(state=ReplicaState.FAILED).exists(), "failed")
    replica = environment.replicas.all()[0]
    assert replica.handle == {} and replica.restarts == 4
    assert "5 times in a row" in replica.error["message"] and "restart" in replica.error["hint"]
    assert "The token must have at least 16 characters." in replica.error["log"]
    environment.refresh_from_db()
    assert environment.healthy is not True


@pytest.mark.slow
def test_servers_end_with_their_keeper_and_return_with_the_next(keep: Keep, launch: Callable[..., Environment]) -> None:
    environment = launch(wanted=2)
    keeper = keep()
    rows = wait_for(lambda: healthy(environment, 2), "two healthy replicas")
    assert environment_restart(environment=environment, number=2) == 1
    wait_for(lambda: environment.replicas.filter(number=2, restarts=1, wish="").exists(), "the wish")
    pids = [row.handle["pid"] for row in wait_for(lambda: healthy(environment, 2), "both healthy again")]
    keeper.kill()
    keeper.wait(timeout=10)
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in pids), "servers gone with their keeper")
    keep()
    again = wait_for(lambda: healthy(environment, 2), "servers of the next keeper")
    assert [row.url for row in again] == [row.url for row in rows]
    # Deleted: what no row names is ended, and its files go.
    folder = environment_dir(environment.pk)
    environment_delete(environment=environment)
    wait_for(lambda: not any(psutil.pid_exists(row.handle["pid"]) for row in again), "the orphans' end")
    assert not folder.exists()


@pytest.mark.slow
def test_a_second_keeper_waits(keep: Keep, launch: Callable[..., Environment]) -> None:
    environment = launch(wanted=1)
    first = keep()
    replica = wait_for(lambda: healthy(environment, 1), "one healthy replica")[0]
    second = keep()
    time.sleep(4)
    assert second.poll() is None and environment.replicas.all()[0].handle == replica.handle
    first.terminate()
    first.wait(timeout=15)
    assert not psutil.pid_exists(replica.handle["pid"])
    fresh = wait_for(lambda: healthy(environment, 1), "the second keeper's server")[0]
    assert fresh.url == replica.url and psutil.Process(fresh.handle["pid"]).ppid() == second.pid
