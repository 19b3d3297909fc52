"""``/metrics``: every figure over planted rows, who may read it, and what it says when something is away."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from django.db import OperationalError
from django.test import Client
from django.utils import timezone
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from tests.growth import queries_of
from tests.processes import ROOT
from training.journal import JOURNAL_NAME
from webapp.chat.models import Holder
from webapp.common.storage import attempt_dir
from webapp.common.workers.models import GONE_AFTER, Worker
from webapp.engine.models import Outbox, ReaperMark
from webapp.environments.models import Environment, ReplicaState
from webapp.environments.selectors import STALE_AFTER_S
from webapp.people.teams.models import Project
from webapp.runs.models import Attempt, Run
from webapp.runs.states import RunState
from webapp.site.monitoring import views

pytestmark = pytest.mark.django_db
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
TOKEN = "a-token-of-the-scraper"
Values = dict[tuple[str, ...], float]
QUERIES = 17


def values_of(families: Any) -> dict[str, Values]:
    """Name → values by the values of the labels; a family without samples is there, and empty."""
    return {each.name: {tuple(one.labels.values()): one.value for one in each.samples} for each in families}


@pytest.fixture
def scrape(client: Client) -> Callable[[], dict[str, Values]]:
    """Ask once in each format; both say the same but for the clock."""

    def ask() -> dict[str, Values]:
        old, new = client.get("/metrics"), client.get("/metrics", headers={"Accept": OPENMETRICS})
        assert (old.status_code, new.status_code) == (200, 200)
        assert old["Content-Type"].startswith("text/plain; version=0.0.4")
        assert new["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        found = values_of(read_text(old.content.decode()))
        other = values_of(read_openmetrics(new.content.decode()))
        assert {name: set(values) for name, values in other.items()} == {name: set(found[name]) for name in found}
        assert set(found) == set(views.figures())
        return found

    return ask


def ago(**time: float) -> Any:
    return timezone.now() - timedelta(**time)


def about(seconds: float) -> Any:
    return pytest.approx(seconds, abs=5)


def test_an_empty_installation_has_zeros_where_they_are_known_and_else_nothing(scrape: Any, settings: Any) -> None:
    settings.POOLS = {"short": 3, "long": 2}
    found = scrape()
    assert found["tiltyard_runs"] == {(state,): 0 for state in RunState.values}
    assert found["tiltyard_queue_runs"] == found["tiltyard_leases"] == {("train",): 0, ("endpoint",): 0}
    assert found["tiltyard_pool_places"] == {("train",): 0, ("endpoint",): 0, ("short",): 3, ("long",): 2}
    assert found["tiltyard_outbox_unsent"] == {(): 0} and found["tiltyard_projection_attempts"] == {(): 0}
    assert len(found["tiltyard_workers"]) == 12 and set(found["tiltyard_workers"].values()) == {0}
    for name in (
        "tiltyard_queue_oldest_seconds", "tiltyard_lease_oldest_beat_seconds", "tiltyard_clockwork_age_seconds",
        "tiltyard_pool_oldest_seconds", "tiltyard_outbox_oldest_seconds", "tiltyard_environment_slots",
        "tiltyard_projection_lag_max_bytes", "tiltyard_devices", "tiltyard_worker_beat_age_seconds",
    ):  # fmt: skip
        assert found[name] == {}, name
    assert found[views.ERRORS] == {(name,): 0 for name in views.COLLECTORS}


def test_runs_the_queue_and_leases(scrape: Any, make_run: Any) -> None:
    first = make_run(state="queued", queued_at=ago(minutes=7))
    make_run(state="queued", queued_at=ago(minutes=3))
    make_run(state="queued", queued_at=ago(minutes=9), after=first)
    make_run(state="queued", queued_at=ago(minutes=2), pool="endpoint")
    make_run(state="running", lease_started_at=ago(seconds=90), lease_beat_at=ago(seconds=2))
    make_run(state="preparing", lease_started_at=ago(seconds=40))
    make_run(state="stopping", pool="endpoint", lease_started_at=ago(hours=1), lease_beat_at=ago(seconds=20))
    make_run(state="failed", lease_started_at=ago(hours=2), lease_beat_at=ago(hours=2))
    make_run(state="failed", imported=True)
    make_run(state="failed", removed_at=timezone.now())
    found = scrape()
    counted = {state: int(count) for (state,), count in found["tiltyard_runs"].items() if count}
    assert counted == {"queued": 4, "running": 1, "preparing": 1, "stopping": 1, "failed": 1}
    assert found["tiltyard_queue_runs"] == {("train",): 2, ("endpoint",): 1}
    assert found["tiltyard_queue_oldest_seconds"] == {("train",): about(420), ("endpoint",): about(120)}
    assert found["tiltyard_leases"] == {("train",): 2, ("endpoint",): 1}
    assert found["tiltyard_lease_oldest_beat_seconds"] == {(): about(40)}


def test_the_clockwork_and_the_outbox(scrape: Any, make_run: Any) -> None:
    ReaperMark.objects.create(pk=1, ran_at=ago(seconds=12))
    for minutes in (4, 6, 5):
        nudge = Outbox.objects.create(run=make_run())
        Outbox.objects.filter(pk=nudge.pk).update(created_at=ago(minutes=minutes))
    sent = Outbox.objects.create(run=make_run(), sent_at=timezone.now())
    Outbox.objects.filter(pk=sent.pk).update(created_at=ago(hours=1))
    found = scrape()
    assert found["tiltyard_clockwork_age_seconds"] == {(): about(12)}
    assert found["tiltyard_outbox_unsent"] == {(): 3}
    assert found["tiltyard_outbox_oldest_seconds"] == {(): about(360)}


def worker(name: str, *queues: str, silent_s: float = 1, **fields: Any) -> Worker:
    at = ago(seconds=silent_s)
    return Worker.objects.create(name=name, queues=list(queues), started_at=at, beat_at=at, **fields)


def test_workers_and_devices(scrape: Any, make_run: Any) -> None:
    edge = GONE_AFTER.total_seconds()
    worker("train-0@a", "train", device="GPU 0", gpu="NVIDIA H200")
    worker("train-1@a", "train", device="GPU 1", gpu="NVIDIA H200", silent_s=edge - 3)
    worker("train-0@b", "train", device="GPU 0", gpu="NVIDIA L4", silent_s=edge + 1)
    worker("train-0@c", "train", device="GPU 0", gpu="NVIDIA L4", problem="no_identity")
    worker("train-0@d", "train", device="CPU", places=2)
    worker("short@a", "short", "long", places=4)
    for name in ("train-1@a", "train-0@b", "train-0@d"):
        make_run(state="running", lease_worker=name)
    make_run(state="succeeded", lease_worker="train-0@a")
    make_run(state="running", pool="endpoint", lease_worker="train-0@d")
    Holder.objects.create(owner="x", worker="train-0@a", heard_at=timezone.now())
    found = scrape()
    counted = {labels: count for labels, count in found["tiltyard_workers"].items() if count}
    train = {("train", "alive"): 3, ("train", "gone"): 1, ("train", "refusing"): 1}
    assert counted == train | {("short", "alive"): 1, ("long", "alive"): 1}
    assert found["tiltyard_devices"] == {("NVIDIA H200",): 2, ("CPU",): 2}
    assert found["tiltyard_devices_used"] == {("NVIDIA H200",): 2, ("CPU",): 1}
    assert found["tiltyard_worker_beat_age_seconds"]["train-0@b",] == about(edge + 1)
    assert len(found["tiltyard_worker_beat_age_seconds"]) == 6


def test_clocks_of_hosts(scrape: Any) -> None:
    """A right clock is 0, one of which nothing is known has no figure."""
    for name, clock_s in {"train@a": 0.0, "train@b": 3600.0, "train@c": -75.5, "train@d": None}.items():
        worker(name, "train", clock_s=clock_s)
    assert scrape()["tiltyard_worker_clock_seconds"] == {("train@a",): 0, ("train@b",): 3600, ("train@c",): -75.5}


def test_a_device_counts_once_however_many_use_its_worker(scrape: Any, make_run: Any) -> None:
    """A run that is about to be given back and the next one may both name the worker."""
    worker("train-0@a", "train", device="CPU")
    for _ in range(2):
        make_run(state="running", lease_worker="train-0@a")
    assert scrape()["tiltyard_devices_used"] == {("CPU",): 1}


def test_environment_servers_and_their_slots(scrape: Any, make_environment: Any) -> None:
    def server(state: str, seconds: float | None, **health: Any) -> None:
        environment: Environment = make_environment()
        checked = None if seconds is None else ago(seconds=seconds)
        environment.replicas.update(state=state, checked_at=checked, health=health)

    server(ReplicaState.HEALTHY, 1, sessions=3, slots=8)
    server(ReplicaState.HEALTHY, STALE_AFTER_S - 3, sessions=5, slots=4)  # more than it has: none is free
    server(ReplicaState.HEALTHY, STALE_AFTER_S + 1, sessions=50, slots=100)
    server(ReplicaState.HEALTHY, 1)
    server(ReplicaState.FAILED, 1, sessions=7, slots=7)
    server(ReplicaState.STARTING, None)
    found = scrape()
    states = {state: count for (state,), count in found["tiltyard_environment_servers"].items() if count}
    assert states == {"healthy": 3, "failed": 1, "unchecked": 2}
    assert found["tiltyard_environment_slots"] == {("taken",): 8, ("free",): 5}


@pytest.fixture
def attempt(make_run: Any) -> Callable[..., Path]:
    """``attempt(size, offset, **run)``: the journal of a leased run's newest attempt."""

    def make(size: int | None, offset: int, **fields: Any) -> Path:
        run: Run = make_run(**({"state": "running", "attempt": 2} | fields))
        for number in (1, 2):
            Attempt.objects.create(
                run=run,
                number=number,
                owner="w",
                started_at=timezone.now(),
                journal_offset=offset if number == 2 else 0,
            )
        path = attempt_dir(run.pk, 2) / JOURNAL_NAME
        path.parent.mkdir(parents=True)
        (path.parents[1] / "1").mkdir()
        (path.parents[1] / "1" / JOURNAL_NAME).write_bytes(b"x" * 9_999)
        if size is not None:
            path.write_bytes(b"x" * size)
        return path

    return make


def test_what_of_the_journals_is_not_projected(scrape: Any, attempt: Callable[..., Path]) -> None:
    attempt(500, 500)
    attempt(900, 500)
    attempt(5_001, 5_000, state="stopping")
    attempt(None, 0, state="preparing")
    attempt(70_000, 0, state="succeeded")
    found = scrape()
    assert found["tiltyard_projection_attempts"] == {(): 4}
    assert found["tiltyard_projection_behind_attempts"] == {(): 2}
    assert found["tiltyard_projection_lag_max_bytes"] == {(): 400}


def test_a_journal_that_cannot_be_seen_is_an_error_and_not_zero(scrape: Any, attempt: Callable[..., Path]) -> None:
    attempt(None, 500)
    attempt(900, 500)
    found = scrape()
    assert found["tiltyard_projection_attempts"] == found["tiltyard_projection_lag_max_bytes"] == {}
    assert {name for (name,), count in found[views.ERRORS].items() if count} == {"projection"}


@pytest.fixture
def emptied() -> Iterator[None]:
    """Queues without messages before and after."""
    with current_app.connection_for_write() as connection:
        for name in views.QUEUES:
            connection.default_channel.queue_purge(name)
        yield
        for name in views.QUEUES:
            connection.default_channel.queue_purge(name)


def test_messages_of_every_priority_are_counted(scrape: Any, emptied: None) -> None:
    for priority in (0, 1, 3, 6, 9):
        current_app.send_task("work.do", args=["x", "y"], queue="long", priority=priority)
    current_app.send_task("work.do", args=["x", "y"], queue="train")
    found = scrape()["tiltyard_messages"]
    assert found == {("train",): 1, ("endpoint",): 0, ("short",): 0, ("long",): 5}


def test_room_on_the_disk_and_the_version(scrape: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTYARD_DISK_RESERVE_MB", "3")
    settings.PRODUCT_VERSION = "1.2.3"
    found = scrape()
    assert found["tiltyard_data_reserve_bytes"] == {(): 3 << 20}
    assert 0 < found["tiltyard_data_free_bytes"][()] < found["tiltyard_data_size_bytes"][()]
    assert found["tiltyard_build_info"] == {("1.2.3",): 1}
    settings.DATA_DIR = Path("/nowhere")
    found = scrape()
    assert found["tiltyard_data_free_bytes"] == {} and found[views.ERRORS]["disk",] == 1


# --- What is away ---------------------------------------------------------------------------------------------------


def test_a_broker_that_is_away_costs_its_own_figures_alone(scrape: Any, settings: Any, make_run: Any) -> None:
    make_run()
    settings.CELERY_BROKER_URL = "redis://127.0.0.1:1/0"
    found = scrape()
    assert found["tiltyard_messages"] == {} and found["tiltyard_runs"]["draft",] == 1
    assert {name for (name,), count in found[views.ERRORS].items() if count} == {"messages"}


def test_a_database_that_is_away_is_asked_once(scrape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def away(name: str) -> Callable[[], Iterator[views.Sample]]:
        def read() -> Iterator[views.Sample]:
            asked.append(name)
            yield views.Sample("tiltyard_outbox_unsent", 3)
            raise OperationalError

        return read

    monkeypatch.setattr(views.connection, "close", lambda: None)
    for name, collector in views.COLLECTORS.items():
        if collector.database:
            monkeypatch.setitem(views.COLLECTORS, name, collector._replace(read=away(name)))
    found = scrape()
    assert asked == ["runs", "runs"]  # once in each format
    wrong = {name for (name,), count in found[views.ERRORS].items() if count}
    assert wrong == {name for name, collector in views.COLLECTORS.items() if collector.database}
    assert found["tiltyard_outbox_unsent"] == {}, "half of a collector's figures would look whole"
    assert found["tiltyard_data_free_bytes"] and found["tiltyard_messages"]


def test_a_fault_of_one_collector_leaves_the_others(scrape: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    broken = views.COLLECTORS["queue"]._replace(read=lambda: iter([1 / 0]))  # type: ignore[list-item]
    monkeypatch.setitem(views.COLLECTORS, "queue", broken)
    found = scrape()
    assert {name for (name,), count in found[views.ERRORS].items() if count} == {"queue"}
    assert any(record.exc_info and getattr(record, "collector", "") == "queue" for record in caplog.records)


# --- Cost -----------------------------------------------------------------------------------------------------------


def test_questions_to_the_database_do_not_grow(
    client: Client, make_run: Any, make_environment: Any, attempt: Callable[..., Path]
) -> None:
    def fill(number: int) -> None:
        for n in range(number):
            make_run(state="queued")
            make_environment()
            attempt(5, 0)
            worker(f"train-{number}-{n}@a", "train")

    few = queries_of(client, "/metrics")
    fill(3)
    assert queries_of(client, "/metrics") == few
    fill(9)
    assert queries_of(client, "/metrics") == few == QUERIES


# --- Access ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_without_a_token_this_machine_may_read(client: Client, address: str) -> None:
    answer = client.get("/metrics", REMOTE_ADDR=address)
    assert answer.status_code == 200 and answer["Cache-Control"].startswith("max-age=0, no-cache")


@pytest.mark.parametrize(
    ("address", "header"),
    [
        ("10.0.0.7", ""), ("::ffff:10.0.0.7", ""), ("2001:db8::1", ""), ("", ""), ("nobody", ""),
        ("127.0.0.1", "X-Forwarded-For"), ("127.0.0.1", "Forwarded"), ("::1", "X-Real-Ip"), ("127.0.0.1", "Via"),
    ],
)  # fmt: skip
def test_without_a_token_no_other_machine_may(client: Client, address: str, header: str) -> None:
    """A proxy on this machine that Tiltyard does not know about would open it to everybody."""
    headers = {"Authorization": f"Bearer {TOKEN}"} | ({header: "127.0.0.1"} if header else {})
    answer = client.get("/metrics", REMOTE_ADDR=address, headers=headers)
    assert answer.status_code == 403
    assert answer.json() == {
        "ok": False,
        "code": "forbidden",
        "message": "Without TILTYARD_METRICS_TOKEN, only this machine may read the metrics, and not through a proxy.",
        "detail": None,
        "request_id": answer["X-Request-Id"],
    }


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (f"Bearer {TOKEN}", 200), (f"bearer  {TOKEN} ", 200), (f"Bearer {TOKEN}x", 401), (f"Bearer {TOKEN[:-1]}", 401),
        (f"Basic {TOKEN}", 401), (TOKEN, 401), ("Bearer", 401), ("", 401), ("Bearer \u00e4", 401),
    ],
)  # fmt: skip
def test_with_a_token_only_its_bearer_may(client: Client, settings: Any, sent: str, status: int) -> None:
    settings.METRICS_TOKEN = TOKEN
    for address in ("127.0.0.1", "10.0.0.7"):
        answer = client.get("/metrics", REMOTE_ADDR=address, headers={"Authorization": sent} if sent else {})
        assert answer.status_code == status
        if status == 401:
            assert answer["WWW-Authenticate"] == "Bearer" and answer.json()["code"] == "login_required"
            assert "TILTYARD_METRICS_TOKEN" in answer.json()["message"] and TOKEN not in answer.content.decode()


@pytest.mark.parametrize(
    ("path", "host", "token", "status"),
    [
        ("/metrics", "web:8000", TOKEN, 200), ("/metrics", "web:8000", f"{TOKEN}x", 401),
        ("/metrics", "web:8000", "", 401), ("/metrics", "Web:8000", TOKEN, 400),
        ("/metrics", "web", TOKEN, 400), ("/metrics", "web:8001", TOKEN, 400), ("/metrics", "evil.example", TOKEN, 400),
        ("/metrics/", "web:8000", TOKEN, 400), ("/login/", "web:8000", TOKEN, 400), ("/", "web:8000", TOKEN, 400),
        ("/readyz", "web:8000", TOKEN, 400), ("//metrics", "web:8000", TOKEN, 400),
    ],
)  # fmt: skip
def test_a_monitor_inside_our_network_gets_the_figures_and_nothing_else(
    client: Client, settings: Any, path: str, host: str, token: str, status: int
) -> None:
    """Prometheus in a container asks for `web:8000`, which no browser knows, and without TLS."""
    settings.ALLOWED_HOSTS, settings.METRICS_TOKEN, settings.METRICS_HOST = ["site.example"], TOKEN, "web:8000"
    headers = {"Host": host} | ({"Authorization": f"Bearer {token}"} if token else {})
    answer = client.get(path, REMOTE_ADDR="10.213.77.5", headers=headers)
    assert answer.status_code == status
    assert (b"tiltyard_runs" in answer.content) is (status == 200)


def test_that_name_needs_a_token_and_a_setting(client: Client, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["site.example"]
    asked = {"headers": {"Host": "web:8000", "Authorization": f"Bearer {TOKEN}"}}
    for host, token in (("", TOKEN), ("web:8000", "")):
        settings.METRICS_HOST, settings.METRICS_TOKEN = host, token
        assert client.get("/metrics", **asked).status_code == 400
        assert client.get("/metrics", headers=asked["headers"] | {"Host": ""}).status_code == 400
    settings.METRICS_HOST, settings.METRICS_TOKEN, settings.SECURE_SSL_REDIRECT = "web:8000", TOKEN, True
    assert client.get("/metrics", **asked).status_code == 200
    assert client.post("/metrics", **asked).status_code == 405


def test_the_tokens_are_compared_in_constant_time(client: Client, settings: Any, monkeypatch: Any) -> None:
    settings.METRICS_TOKEN = TOKEN
    compared: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr("hmac.compare_digest", lambda a, b: compared.append((a, b)) or False)
    assert client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 401
    assert compared == [(TOKEN.encode(), TOKEN.encode())]


def test_it_can_only_be_read(client: Client) -> None:
    assert client.post("/metrics").status_code == 405


def test_figures_name_no_object_of_a_team(
    client: Client, project: Project, make_run: Any, make_environment: Any
) -> None:
    run, environment = make_run(name="secret plan", state="running"), make_environment(name="secret-tools")
    text = client.get("/metrics").content.decode()
    assert not [each for each in (run.name, str(run.pk), environment.name, project.slug) if each in text]


# --- Documents ------------------------------------------------------------------------------------------------------


def test_the_page_lists_every_figure_with_its_labels() -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text()
    rows = re.findall(r"^\| `(tiltyard_\w+)` \| (.+?) \| (.+) \|$", text, re.M)
    assert {name: (tuple(re.findall(r"`(\w+)`", labels)), says) for name, labels, says in rows} == {
        name: (figure.labels, figure.help) for name, figure in views.figures().items()
    }
    assert f"takes {QUERIES} queries" in text


@pytest.mark.parametrize(
    ("token", "code"), [("x" * 16, 0), ("x" * 15, 1), ("ä" * 16, 1), ("x" * 16 + "\n", 1), ("", 0)]
)
def test_a_token_that_is_easy_to_guess_stops_the_start(token: str, code: int, tmp_path: Path) -> None:
    env = dict(os.environ) | {"TILTYARD_METRICS_TOKEN": token, "TILTYARD_DATA_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", "import webapp.settings"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code and ("TILTYARD_METRICS_TOKEN must be" in done.stderr) is bool(code)
