"""Every migration since 0.1.0 goes back, and what people made survives the way there and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.apps import apps
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState
from psycopg import sql

from tests.plugin import template_ready

ROOT = Path(__file__).resolve().parents[3]
DATABASE = "there_and_back"
# The newest migrations of the release before, commit 388a114.
RELEASE = {
    "datasets": "0005",
    "environments": "0004",
    "metrics": "0002",
    "registry": "0002",
    "removal": "zero",
    "rewards": "0004",
    "rollouts": "0003",
    "runs": "0007",
    "secrets": "zero",
    "sharing": "zero",
    "teams": "0002",
    "votes": "zero",
    "workers": "zero",
}
SCRIPT = """
import json, sys
import django
django.setup()
from django.core.management import call_command
from django.db import connection

def names():
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, state, error->>'code' FROM runs_run ORDER BY name")
        runs = cursor.fetchall()
        cursor.execute("SELECT path, bytes FROM registry_checkpoint")
        points = cursor.fetchall()
        cursor.execute("SELECT username FROM teams_user")
        people = cursor.fetchall()
        cursor.execute("SELECT action, length(subject) FROM teams_auditentry")
        audit = cursor.fetchall()
        cursor.execute("SELECT seq, kind FROM runs_runevent ORDER BY seq")
        events = cursor.fetchall()
        cursor.execute("SELECT name, step, value FROM metrics_metricpoint ORDER BY name, step")
        figures = cursor.fetchall()
        cursor.execute("SELECT number, messages->0->>'content', seq FROM rollouts_turn ORDER BY number")
        turns = cursor.fetchall()
        cursor.execute("SELECT step, reward_mean FROM rollouts_rolloutgroup ORDER BY step")
        return [runs, points, people, audit, events, figures, turns, cursor.fetchall()]

call_command("migrate", verbosity=0)
import uuid
from django.utils import timezone
from webapp.runs.registry.models import Checkpoint
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.rollouts.models import Rollout, RolloutGroup, Turn
from webapp.launch.models import Preparation
from webapp.runs.models import Run, RunEvent
from webapp.people.teams.models import AuditEntry, Project, Team, User
from webapp.runs.removal.models import Removal

user = User.objects.create_user("old-hand", password="a password of twenty")
project = Project.objects.create(team=Team.objects.create(name="Team"), name="Project", slug="project")
parent = Run.objects.create(project=project, name="parent", config={"kind": "grpo"}, state="succeeded", created_by=user)
point = Checkpoint.objects.create(project=project, run=parent, attempt=1, step=5, path="1/checkpoints/checkpoint-5",
                                  bytes=7, state="torn", seq=1, created_at=timezone.now())
held = {"step": 3, "tries": 1}
child = Run.objects.create(project=project, name="child", config={"kind": "grpo"}, state="paused", created_by=user,
                           parent=parent, resume_checkpoint=point, resume_step=5, held=held,
                           error={"code": "storage_full", "boundary": "storage", "message": "full", "hint": ""})
Preparation.objects.create(project=project, preset="webshop", size="test", created_by=user)
AuditEntry.objects.create(user_id=uuid.uuid4(), username="old-hand", action="checkpoint_deleted", subject="x" * 200)
Removal.objects.create(name="gone")
at = timezone.now()
rollout = Rollout.objects.create(run=parent, attempt=1, step=1, group=0, index=0, started_at=at, seq=1)
for n in range(2):
    said = [{"role": "user", "content": f"said {n}"}]
    Turn.objects.create(rollout=rollout, run=parent, number=n, messages=said, seq=2 + n)
    MetricPoint.objects.create(run=parent, attempt=1, step=n, name="loss", value=n / 2, seq=4 + n)
    RolloutGroup.objects.create(run=parent, attempt=1, step=n, group=0, reward_mean=n / 4,
                                zero_variance=False, seq=6 + n)
    RunEvent.objects.create(run=parent, seq=8 + n, kind="log", at=at)
before = names()
for app, number in json.loads(sys.argv[1]).items():
    call_command("migrate", app, number, verbosity=0)
back = names()
with connection.cursor() as cursor:
    tables = set(connection.introspection.table_names(cursor))
    columns = {column.name for column in connection.introspection.get_table_description(cursor, "runs_run")}
call_command("migrate", verbosity=0)
found = {"before": before, "back": back, "again": names(), "tables": sorted(tables), "columns": sorted(columns)}
print(json.dumps(found))
"""


@pytest.fixture
def url() -> Iterator[str]:
    """A database of its own next to the session's: all migrations are in it already if the session has a template."""
    ours = os.environ["DATABASE_URL"]
    name = sql.Identifier(DATABASE)
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name)
    with psycopg.connect(ours, autocommit=True) as connection:
        connection.execute(drop)
        template = sql.Identifier(template_ready() or "template1")
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, template))
        path = urlsplit(ours).path
        yield ours.replace(f"{path}?", f"/{DATABASE}?") if "?" in ours else ours.removesuffix(path) + f"/{DATABASE}"
        connection.execute(drop)


@pytest.mark.slow
def test_the_way_back_to_the_older_release_and_forward_again(url: str) -> None:
    env = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "webapp.settings"}
    argv = [sys.executable, "-c", SCRIPT, json.dumps(RELEASE)]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    output = json.loads(done.stdout.splitlines()[-1])
    assert output["before"] == [
        [["child", "paused", "storage_full"], ["parent", "succeeded", None]],
        [["1/checkpoints/checkpoint-5", 7]],
        [["old-hand"]],
        [["checkpoint_deleted", 200]],
        [[8, "log"], [9, "log"]],
        [["loss", 0, 0.0], ["loss", 1, 0.5]],
        [[0, "said 0", 2], [1, "said 1", 3]],
        [[0, 0.0], [1, 0.25]],
    ]
    assert output["back"] == output["before"] and output["again"] == output["before"]
    assert not {"held", "parent_id", "removed_at", "resume_step"} & set(output["columns"])
    assert not {"workers_worker", "removal_removal", "teams_loginthrottle"} & set(output["tables"])


def test_every_change_of_a_model_has_its_migration() -> None:
    """Also where a class moved into another room: one that is not loaded, or has another label, would be a change."""
    loader = MigrationLoader(None)
    made = MigrationAutodetector(loader.project_state(), ProjectState.from_apps(apps)).changes(loader.graph)
    assert {label: [change.operations for change in found] for label, found in made.items()} == {}


def test_tables_keep_their_names_in_the_rooms_that_own_them() -> None:
    rooms = ("webapp.engine.models", "webapp.foreign.models", "webapp.launch.models")
    found = {(model.__module__, model._meta.db_table) for model in apps.get_models() if model.__module__ in rooms}
    assert found == {
        ("webapp.engine.models", "runs_outbox"),
        ("webapp.engine.models", "runs_reapermark"),
        ("webapp.foreign.models", "foreign_runexport"),
        ("webapp.foreign.models", "runs_runimport"),
        ("webapp.launch.models", "runs_launchcheck"),
        ("webapp.launch.models", "runs_memoryestimate"),
        ("webapp.launch.models", "runs_preparation"),
        ("webapp.launch.models", "runs_sweep"),
        ("webapp.launch.models", "runs_sweeprun"),
    }
