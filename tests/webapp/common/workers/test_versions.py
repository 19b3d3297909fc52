"""A process of another version than the database takes no work, and its host's clock is shown where it is wrong."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import ProgrammingError, connection
from django.test import Client
from django.utils import timezone

from webapp.common.workers import beating
from webapp.common.workers.beating import Beats, folder_problem, training_problem, version_problem
from webapp.common.workers.models import Worker
from webapp.engine.supervisor import supervise
from webapp.people.teams.models import User
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db
URL = "/workers/"
NEWEST = "SELECT name FROM django_migrations WHERE app = 'runs' ORDER BY name DESC LIMIT 1"


def sql(statement: str, *values: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def apply(app: str, name: str) -> None:
    sql("INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, now())", app, name)


def worker(name: str, **over: Any) -> Worker:
    at = timezone.now()
    return Worker.objects.create(name=name, **({"queues": ["train"], "started_at": at, "beat_at": at} | over))


def test_a_database_of_this_version_is_no_problem() -> None:
    assert version_problem() == folder_problem() == training_problem() == ""


def test_another_name_of_the_newest_migration_is_no_problem() -> None:
    """Branches of one version name theirs differently."""
    [(newest,)] = sql(NEWEST)
    apply("runs", f"{newest[:4]}_another_name")
    assert version_problem() == ""


def test_a_worker_that_is_older_than_the_database_claims_nothing(make_run: Any) -> None:
    [(newest,)] = sql(NEWEST)
    apply("runs", f"{int(newest[:4]) + 1:04d}_of_tomorrow")
    assert version_problem() == folder_problem() == training_problem() == "older_version"
    run = make_run(state=RunState.QUEUED)
    supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.attempt) == (RunState.QUEUED, 0)


def test_a_worker_that_is_newer_than_the_database_claims_nothing(make_run: Any) -> None:
    [(newest,)] = sql(NEWEST)
    sql("DELETE FROM django_migrations WHERE app = 'runs' AND name = %s", newest)
    assert version_problem() == folder_problem() == training_problem() == "newer_version"
    run = make_run(state=RunState.QUEUED)
    supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.attempt) == (RunState.QUEUED, 0)


def test_where_both_are_true_the_older_one_is_named() -> None:
    """It is the worker that has to change: the database cannot be migrated by its code."""
    sql("DELETE FROM django_migrations WHERE app = 'datasets'")
    apply("runs", "9999_of_tomorrow")
    assert version_problem() == "older_version"


@pytest.mark.parametrize("app", ["auth", "a_room_of_tomorrow"])
def test_apps_that_are_not_ours_do_not_count(app: str) -> None:
    apply(app, "9999_of_tomorrow")
    assert version_problem() == ""


def test_a_beat_that_the_database_does_not_know_yet_is_named_and_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []
    beats = Beats("train@new", ["train"], 1)

    def refuse(*_: Any) -> None:
        tries.append(1)
        if len(tries) == 2:
            beats._done.set()
        raise ProgrammingError('column "clock_s" does not exist')

    monkeypatch.setattr(beating, "beat", refuse)
    monkeypatch.setattr(beating, "BEAT_S", 0.01)
    monkeypatch.setattr(beating.connection, "close", lambda: None)
    with caplog.at_level(logging.ERROR):
        beats.run()
    assert len(tries) == 2
    assert [record.message for record in caplog.records] == ["this version is newer than the database: migrate it"] * 2


@pytest.mark.parametrize("problem", ["older_version", "newer_version"])
def test_the_page_says_so_and_tells_administrators_what_to_do(client: Client, rita: User, problem: str) -> None:
    worker("train@gpu-1", problem=problem)
    client.force_login(rita)
    hint = {"older_version": "Update its host", "newer_version": "Update the site&#x27;s own host"}[problem]
    sentence = f"It runs an {problem[:5]} version" if problem[0] == "o" else "It runs a newer version"
    page = client.get(URL).text
    assert sentence in page and hint not in page
    rita.is_superuser = True
    rita.save()
    assert hint in client.get(URL).text


@pytest.mark.parametrize(
    ("clock_s", "sentence"),
    [
        (3600.0, "Its clock is 1 h 0 min ahead of the database"),
        (-75.0, "Its clock is 1 min 15 s behind the database"),
        (0.0, ""),
        (None, ""),
    ],
)
def test_a_wrong_clock_is_on_the_page(client: Client, rita: User, clock_s: float | None, sentence: str) -> None:
    worker("train@gpu-1", clock_s=clock_s)
    client.force_login(rita)
    page = client.get(URL).text
    assert (sentence in page) if sentence else ("Its clock" not in page)
    assert "NTP" not in page
    rita.is_superuser = True
    rita.save()
    assert ("NTP" in client.get(URL).text) == bool(sentence)


def test_the_clock_of_a_worker_that_is_gone_is_not_shown(client: Client, rita: User) -> None:
    worker("train@gpu-1", clock_s=3600.0, beat_at=timezone.now() - beating.GONE_AFTER - beating.GONE_AFTER)
    client.force_login(rita)
    assert "Its clock" not in client.get(URL).text


def test_a_beat_writes_by_how_much_the_clock_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beating, "measure", lambda: -3600.0)
    beating.beat("train@gpu-1", 1, ["train"])
    assert Worker.objects.get().clock_s == -3600.0
