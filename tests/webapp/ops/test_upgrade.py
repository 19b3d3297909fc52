"""A data folder made by an older release comes up after the update with everything in place.

The older release is checked out from the repository's own history, run as its users ran it until the demo's two runs
have ended, and stopped. Then this code starts on the same folder. And back again, as docs/operations.md says.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.webapp.ops.comparing import Tables, differences, files_of, tables_of
from tests.webapp.ops.test_migrations import RELEASE as MIGRATIONS
from webapp.common.host import Known, alive, end, free_port

ROOT = Path(__file__).resolve().parents[3]
RELEASE = "388a114c"
LIMIT_S = 900.0
OURS = ("DATABASE_URL", "REDIS_URL", "TILTYARD_OUTBOUND_ALLOW", "TILTYARD_PORT", "PYTEST_CURRENT_TEST", "PYTHONPATH")
# What people made: each row by value, in the columns that both releases have. Sums are exact: of floats they depend on
# the order in which the database reads its rows.
FACTS = {
    "runs": "SELECT name, kind, state, step, total_steps, attempt, config::text FROM runs_run ORDER BY name",
    "attempts": "SELECT run_id::text, number, last_step, journal_offset FROM runs_attempt ORDER BY run_id, number",
    "curves": "SELECT run_id::text, name, count(*), sum(value::numeric) FROM metrics_metricpoint"
    " GROUP BY 1, 2 ORDER BY 1, 2",
    "rollouts": "SELECT run_id::text, step, status, count(*), sum(reward::numeric) FROM rollouts_rollout"
    " GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
    "turns": "SELECT run_id::text, count(*), sum(length(messages::text)) FROM rollouts_turn GROUP BY 1 ORDER BY 1",
    "events": "SELECT run_id::text, kind, count(*) FROM runs_runevent GROUP BY 1, 2 ORDER BY 1, 2",
    "datasets": "SELECT name, version, rows, state FROM datasets_dataset ORDER BY name, version",
    "specs": "SELECT name, version, components::text FROM rewards_rewardspec ORDER BY name, version",
    "environments": "SELECT name, url, protocol FROM environments_environment ORDER BY name",
    "models": "SELECT name, kind FROM registry_registeredmodel ORDER BY name",
    "checkpoints": "SELECT run_id::text, path, step, final, bytes FROM registry_checkpoint ORDER BY run_id, path",
    "people": "SELECT username FROM teams_user ORDER BY username",
}
# What a site writes by itself, with no person there: checks of servers, looks at leases, links for logging in, and what
# Django notes of the code itself.
LIVING = (
    "auth_permission", "django_content_type", "django_migrations", "django_session",
    "environments_environment.checked_at", "environments_environment.health", "environments_environmentsample",
    "environments_replica.checked_at", "environments_replica.health",
    "runs_outbox", "runs_reapermark.idle_until", "runs_reapermark.ran_at", "teams_loginlink", "workers_worker",
)  # fmt: skip
# Numbers of rows that are found by what they are about now, and the times of work that had ended.
DROPPED = {
    "metrics_metricpoint.id", "rollouts_rolloutgroup.id", "rollouts_turn.id", "runs_runevent.id",
    "environments_datasetorder.started_at", "runs_preparation.busy_until",
}  # fmt: skip
# What the test itself did in between.
LOGGED_IN = {
    "teams_auditentry": "0 rows changed or gone, 1 new",
    "teams_user.last_login": "1 rows changed or gone, 1 new",
}


class Release:
    """One `up` of some checkout on a data folder."""

    def __init__(self, code: Path, data: Path, *arguments: str) -> None:
        self.data, self.port = data, free_port()
        self.log = data.parent / f"up-{code.name}.log"
        env = {name: value for name, value in os.environ.items() if name not in OURS}
        env |= {"TILTYARD_DATA_DIR": str(data), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", "--port", str(self.port), *arguments],
                cwd=code,
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.wait_for(lambda: "This link logs you in" in self.log.read_text(), 180)

    def wait_for(self, check: object, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not check():  # type: ignore[operator]
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.5)

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        url = json.loads((self.data / "services.json").read_text())["database_url"]
        with psycopg.connect(url) as connection:
            return connection.execute(sql).fetchall()

    def facts(self) -> dict[str, list[tuple[object, ...]]]:
        return {name: self.rows(sql) for name, sql in FACTS.items()}

    def tables(self) -> Tables:
        return tables_of(json.loads((self.data / "services.json").read_text())["database_url"])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=120) == 0, self.log.read_text()[-3000:]


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="tiltyard-tests-"))
    yield made
    file = made / "data" / "processes.json"
    if file.exists():
        found = json.loads(file.read_text())  # the older release wrote the list alone
        left = alive({Known(**entry) for entry in (found if isinstance(found, list) else found["processes"])})
        end(left, grace_s=5)
    shutil.rmtree(made, ignore_errors=True)


def checkout(folder: Path) -> Path:
    """The older release's files, from the history of this clone."""
    done = subprocess.run(["git", "archive", "--format=tar", RELEASE], cwd=ROOT, capture_output=True)
    if done.returncode:
        pytest.skip(f"commit {RELEASE} is not in this clone: {done.stderr.decode()[:200]}")
    code = folder / "older"
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(code, filter="data")
    return code


def logged_in(release: Release) -> httpx.Client:
    link = re.findall(r"http://\S+/login/[\w-]+/", release.log.read_text())[-1]
    browser = httpx.Client(base_url=f"http://127.0.0.1:{release.port}", follow_redirects=True, timeout=30)
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get(link).text)
    assert token is not None
    assert browser.post(link, data={"csrfmiddlewaretoken": token[1]}).status_code == 200
    return browser


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_everything_of_the_older_release_is_there_after_the_update(folder: Path) -> None:
    older = Release(checkout(folder), folder / "data", "--demo")
    ended = "SELECT count(*) FROM runs_run WHERE state = 'succeeded'"
    older.wait_for(lambda: older.rows(ended) == [(2,)], LIMIT_S)
    before, tables = older.facts(), older.tables()
    assert len(before["runs"]) == 2 and len(before["curves"]) > 20 and len(before["rollouts"]) >= 60
    older.stop()

    files = files_of(folder / "data", counts)
    assert len(files) > 20

    newer = Release(ROOT, folder / "data")
    assert newer.facts() == before
    found = lost(tables, newer.tables())
    assert found == dict.fromkeys(DROPPED, "gone")
    now = files_of(folder / "data", counts)
    assert {name: digest for name, digest in files.items() if now.get(name) != digest} == {}
    browser = logged_in(newer)
    project = newer.rows("SELECT slug FROM teams_project WHERE name = 'Demo'")[0][0]
    for page in ("runs", "datasets", "rewards", "environments", "models"):
        assert browser.get(f"/p/{project}/{page}/").status_code == 200, page
    for (run,) in newer.rows("SELECT id::text FROM runs_run"):
        for tab in ("curves", "rollouts", "log", "config", "events"):
            assert browser.get(f"/p/{project}/runs/{run}/?tab={tab}").status_code == 200, tab
    for _run, path, _step, _final, _bytes in before["checkpoints"]:
        assert list((folder / "data").rglob(str(path))), path
    newer.stop()

    go_back(folder / "data")
    again = Release(folder / "older", folder / "data")
    assert again.facts() == before
    for name in DROPPED:  # the columns are there again, with values of their own
        table, column = name.split(".")
        del tables[table][column]
    assert lost(tables, again.tables()) == LOGGED_IN
    now = files_of(folder / "data", counts)
    assert {name: digest for name, digest in files.items() if now.get(name) != digest} == {}
    again.stop()


def counts(path: Path) -> bool:
    """Files that people, trainers and datasets made: not those of PostgreSQL, and no logs and notes of processes."""
    return path.parts[0] in {"runs", "datasets", "exports", "models", "rollout-sets", "uploads"}


def lost(before: Tables, after: Tables) -> dict[str, str]:
    """Every difference of every table, but for what a release writes of itself while it runs."""
    return {name: what for name, what in differences(before, after).items() if name not in LIVING}


def go_back(data: Path) -> None:
    """Undo the migrations that the older release does not know, by the commands of docs/operations.md."""
    env = {name: value for name, value in os.environ.items() if name not in OURS} | {"TILTYARD_DATA_DIR": str(data)}
    for app, number in MIGRATIONS.items():
        argv = [sys.executable, "manage.py", "database", sys.executable, "manage.py", "migrate", app, number]
        done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, (argv, done.stderr[-2000:])
