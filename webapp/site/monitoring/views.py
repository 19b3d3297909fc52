"""What ``/metrics`` says of the installation, and where each figure is read.

All of it is read from the database, the broker and the data folder when it is asked for, so that every web process
answers alike. A collector that cannot read its figures gives none of them, and ``tiltyard_scrape_errors`` says so: a
missing figure is never 0. Labels have few values: states, pools, workers and kinds of device, never a run.
"""

from __future__ import annotations

import hmac
import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any, NamedTuple

import redis
from django.conf import settings
from django.db import connection
from django.db.models import BooleanField, Count, ExpressionWrapper, F, Q, QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce, Now
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from kombu.transport.redis import PRIORITY_STEPS, Channel
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from training.journal import JOURNAL_NAME
from training.machine import reserve_bytes
from training.plain import number_in
from webapp.chat.holder import holders
from webapp.common.database import rows_of
from webapp.common.errors import DATABASE_AWAY, error_body
from webapp.common.pages import bearer, client_address
from webapp.common.pools import ENDPOINT, LONG, SHORT, TRAIN
from webapp.common.storage import attempt_dir
from webapp.common.workers.models import GONE_AFTER, Worker
from webapp.engine.models import Outbox
from webapp.environments.models import Replica, ReplicaState
from webapp.environments.selectors import STALE_AFTER_S
from webapp.runs.models import Attempt, Run
from webapp.runs.states import LEASED, RunState
from webapp.site.workers import (
    BROKER_S,
    POOLS,
    ages_by_pool,
    all_loads,
    by_pool,
    clock_age,
    seconds,
    startable_by_pool,
)

logger = logging.getLogger(__name__)
QUEUES = (TRAIN, ENDPOINT, SHORT, LONG)
OF_DEVICE = ("worker", "index")


class Figure(NamedTuple):
    """A gauge: what it says, and the names of its labels."""

    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """One value of a gauge, with the values of its labels."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


class Collector(NamedTuple):
    """Reads some figures. All of its samples are given, or none: ``read`` raises where one cannot be read."""

    figures: Mapping[str, Figure]
    read: Callable[[], Iterator[Sample]]
    database: bool = True


COLLECTORS: dict[str, Collector] = {}
ERRORS = "tiltyard_scrape_errors"
ERRORS_FIGURE = Figure("1 where a collector could not read its figures, which are absent then.", ("collector",))


def figures() -> dict[str, Figure]:
    """All figures that ``/metrics`` declares, by name."""
    found = {name: figure for each in COLLECTORS.values() for name, figure in each.figures.items()}
    return found | {ERRORS: ERRORS_FIGURE}


class Scrape:
    """One answer, as the encoders of ``prometheus_client`` take it."""

    def collect(self) -> list[Metric]:
        """Every figure that is declared; without samples where there are none."""
        found = {name: GaugeMetricFamily(name, each.help, labels=each.labels) for name, each in figures().items()}
        for sample in _samples():
            found[sample.name].add_metric(sample.labels, sample.value)
        return list(found.values())


def _samples() -> Iterator[Sample]:
    away = False
    for name, collector in COLLECTORS.items():
        samples: list[Sample] | None = None
        try:
            if not (collector.database and away):  # each further question to a database that is away waits as long
                samples = list(collector.read())
        except DATABASE_AWAY as exc:
            away = True
            connection.close()
            logger.warning("figures not read", extra={"action": "scrape", "collector": name, "error": repr(exc)[:200]})
        except Exception:  # the boundary of one collector: the others are read all the same
            logger.exception("figures not read", extra={"action": "scrape", "collector": name})
        yield from samples or ()
        yield Sample(ERRORS, float(samples is None), (name,))


def _known(name: str, value: float | None, labels: tuple[str, ...] = ()) -> Iterator[Sample]:
    """A sample where the value is known."""
    if value is not None:
        yield Sample(name, float(value), labels)


# --- Runs -----------------------------------------------------------------------------------------------------------


def _runs() -> Iterator[Sample]:
    counted = dict(rows_of(_by_state))
    for state in RunState.values:
        yield Sample("tiltyard_runs", counted.get(state, 0), (state,))


def _by_state() -> QuerySet[Any, Any]:
    return Run.objects.filter(imported=False).order_by().values_list("state").annotate(n=Count("pk"))


COLLECTORS["runs"] = Collector(
    {"tiltyard_runs": Figure("Runs by state, without imported ones.", ("state",))},
    _runs,
)


def _queue() -> Iterator[Sample]:
    counted = ages_by_pool(startable_by_pool)
    for pool in POOLS:
        count, age_s = counted.get(pool, (0, None))
        yield Sample("tiltyard_queue_runs", count, (pool,))
        yield from _known("tiltyard_queue_oldest_seconds", age_s, (pool,))


COLLECTORS["queue"] = Collector(
    {
        "tiltyard_queue_runs": Figure("Runs that wait only for a place of a pool, not for another run.", ("pool",)),
        "tiltyard_queue_oldest_seconds": Figure("For how long the first of them has been queued.", ("pool",)),
    },
    _queue,
)


def _leases() -> Iterator[Sample]:
    found = ages_by_pool(_beats_by_pool)
    for pool in POOLS:
        yield Sample("tiltyard_leases", found.get(pool, (0, None))[0], (pool,))
    oldest = max((age_s for _count, age_s in found.values() if age_s is not None), default=None)
    yield from _known("tiltyard_lease_oldest_beat_seconds", oldest)


def _beats_by_pool() -> QuerySet[Any, Any]:
    return by_pool(_leased(), Coalesce("lease_beat_at", "lease_started_at"))


def _leased() -> QuerySet[Run]:
    return Run.objects.filter(state__in=LEASED, imported=False)


COLLECTORS["leases"] = Collector(
    {
        "tiltyard_leases": Figure("Runs that a worker has, by the pool of its place.", ("pool",)),
        "tiltyard_lease_oldest_beat_seconds": Figure("Time since the oldest of the last beats of all leases."),
    },
    _leases,
)


def _projection() -> Iterator[Sample]:
    rows = rows_of(_offsets)
    behind = [_unread_bytes(attempt_dir(run, number) / JOURNAL_NAME, offset) for run, number, offset in rows]
    yield Sample("tiltyard_projection_attempts", len(behind))
    yield Sample("tiltyard_projection_behind_attempts", sum(each > 0 for each in behind))
    yield from _known("tiltyard_projection_lag_max_bytes", max(behind, default=None))


def _offsets() -> QuerySet[Any, Any]:
    held = Q(number=F("run__attempt"), run__state__in=LEASED, run__imported=False, run__removed_at=None)
    return Attempt.objects.filter(held).order_by().values_list("run_id", "number", "journal_offset")


def _unread_bytes(journal: Path, offset: int) -> int:
    """Bytes of a journal that are not in the database. An attempt that has just begun has no journal."""
    try:
        return max(0, journal.stat().st_size - offset)
    except FileNotFoundError:
        if offset:
            raise
        return 0


COLLECTORS["projection"] = Collector(
    {
        "tiltyard_projection_attempts": Figure("Attempts that a worker has."),
        "tiltyard_projection_behind_attempts": Figure("Those whose journal is not wholly in the database."),
        "tiltyard_projection_lag_max_bytes": Figure("The most bytes of one journal that are not in the database."),
    },
    _projection,
)


def _outbox() -> Iterator[Sample]:
    ages = [age for (age,) in rows_of(_unsent)]
    yield Sample("tiltyard_outbox_unsent", len(ages))
    yield from _known("tiltyard_outbox_oldest_seconds", seconds(max(ages, default=None)))


def _unsent() -> QuerySet[Any, Any]:
    return Outbox.objects.filter(sent_at=None).order_by().values_list(Now() - F("created_at"))


COLLECTORS["outbox"] = Collector(
    {
        "tiltyard_outbox_unsent": Figure("Messages for workers that are written and not yet sent to the broker."),
        "tiltyard_outbox_oldest_seconds": Figure("Age of the oldest of them."),
    },
    _outbox,
)


def _clockwork() -> Iterator[Sample]:
    yield from _known("tiltyard_clockwork_age_seconds", clock_age())


COLLECTORS["clockwork"] = Collector(
    {"tiltyard_clockwork_age_seconds": Figure("Time since the clockwork last looked for lost leases.")},
    _clockwork,
)


# --- Places ---------------------------------------------------------------------------------------------------------


def _pools() -> Iterator[Sample]:
    for load in all_loads():
        pool = (load.pool,)
        yield Sample("tiltyard_pool_places", load.places, pool)
        yield Sample("tiltyard_pool_at_work", load.at_work, pool)
        yield Sample("tiltyard_pool_waiting", load.waiting, pool)
        yield from _known("tiltyard_pool_oldest_seconds", load.oldest_s, pool)


COLLECTORS["pools"] = Collector(
    {
        "tiltyard_pool_places": Figure("Places of a pool: those of living workers, or as many as are set.", ("pool",)),
        "tiltyard_pool_at_work": Figure("Runs, chats or people's work in these places.", ("pool",)),
        "tiltyard_pool_waiting": Figure("What waits for a place: runs, answers in chats, people's work.", ("pool",)),
        "tiltyard_pool_oldest_seconds": Figure("For how long the first of it has waited.", ("pool",)),
    },
    _pools,
)


class At(NamedTuple):
    """A worker: its queues and problem, the kind of its device, what its devices do, its places, its clock, and the
    age of its last beat."""

    name: str
    queues: str
    problem: str
    gpu: str
    device: str
    devices: str | None
    places: int
    clock_s: float | None
    age: timedelta

    @property
    def state(self) -> str:
        """Alive, refusing, or gone."""
        if self.age > GONE_AFTER:
            return "gone"
        return "refusing" if self.problem else "alive"

    @property
    def kind(self) -> str:
        """The name of its GPU, else GPU or CPU."""
        return self.gpu or self.device.partition(" ")[0] or "unknown"


READINGS = {
    "tiltyard_device_busy_ratio": "busy",
    "tiltyard_device_memory_used_bytes": "memory_used",
    "tiltyard_device_memory_bytes": "memory",
    "tiltyard_device_power_watts": "power_w",
    "tiltyard_device_temperature_celsius": "temperature_c",
}


def _workers() -> Iterator[Sample]:
    workers = [(At(*row), set(json.loads(row[1]))) for row in rows_of(_all_workers)]
    counted = Counter((queue, worker.state) for worker, queues in workers for queue in queues)
    for queue in QUEUES:
        for state in ("alive", "refusing", "gone"):
            yield Sample("tiltyard_workers", counted[queue, state], (queue, state))
    for worker, _queues in workers:
        yield from _known("tiltyard_worker_beat_age_seconds", seconds(worker.age), (worker.name,))
        yield from _known("tiltyard_worker_clock_seconds", worker.clock_s, (worker.name,))
    training = [worker for worker, queues in workers if worker.state == "alive" and TRAIN in queues]
    yield from _devices(training)
    for worker in training:
        for reading in json.loads(worker.devices or "null") or ():
            for name, column in READINGS.items():
                yield from _known(name, reading[column], (worker.name, reading["id"]))


def _all_workers() -> QuerySet[Any, Any]:
    return Worker.objects.order_by("name").values_list(*At._fields[:-1], Now() - F("beat_at"))


def _devices(training: list[At]) -> Iterator[Sample]:
    """A place of a living training worker is a device: runs and chats use them."""
    used = Counter(name for (name,) in [*rows_of(_run_devices), *rows_of(_chat_devices)])
    total, taken = Counter[str](), Counter[str]()
    for worker in training:
        total[worker.kind] += worker.places
        taken[worker.kind] += min(worker.places, used[worker.name])
    for kind, places in sorted(total.items()):
        yield Sample("tiltyard_devices", places, (kind,))
        yield Sample("tiltyard_devices_used", taken[kind], (kind,))


def _run_devices() -> QuerySet[Any, Any]:
    return _leased().filter(pool=TRAIN).order_by().values_list("lease_worker")


def _chat_devices() -> QuerySet[Any, Any]:
    return holders(TRAIN).order_by().values_list("worker")


COLLECTORS["workers"] = Collector(
    {
        "tiltyard_workers": Figure(
            "Workers by queue: alive, refusing (it takes no work, page Workers says why), or gone (silent).",
            ("queue", "state"),
        ),
        "tiltyard_worker_beat_age_seconds": Figure("Time since a worker's last beat.", ("worker",)),
        "tiltyard_worker_clock_seconds": Figure(
            "By how many seconds the clock of its host is ahead of the database's; 0 below 5.", ("worker",)
        ),
        "tiltyard_devices": Figure("Devices of living training workers, by kind: a GPU's name, or CPU.", ("device",)),
        "tiltyard_devices_used": Figure("Those that a run or a chat has.", ("device",)),
        "tiltyard_device_busy_ratio": Figure("Share of the time that a GPU computes, as NVML reports it.", OF_DEVICE),
        "tiltyard_device_memory_used_bytes": Figure("Its memory in use.", OF_DEVICE),
        "tiltyard_device_memory_bytes": Figure("Its memory.", OF_DEVICE),
        "tiltyard_device_power_watts": Figure("The power that it draws.", OF_DEVICE),
        "tiltyard_device_temperature_celsius": Figure("Its temperature.", OF_DEVICE),
    },
    _workers,
)


# --- Around ---------------------------------------------------------------------------------------------------------


def _messages() -> Iterator[Sample]:
    prefix = settings.CELERY_BROKER_TRANSPORT_OPTIONS["global_keyprefix"]
    limits = {"socket_timeout": BROKER_S, "socket_connect_timeout": BROKER_S}
    keys = [f"{prefix}{queue}{_priority(step)}" for queue in QUEUES for step in PRIORITY_STEPS]
    with redis.Redis.from_url(settings.CELERY_BROKER_URL, **limits) as client, client.pipeline(False) as pipe:
        for key in keys:
            pipe.llen(key)
        lengths = pipe.execute()
    each = len(PRIORITY_STEPS)
    for place, queue in enumerate(QUEUES):
        yield Sample("tiltyard_messages", sum(lengths[place * each : (place + 1) * each]), (queue,))


def _priority(step: int) -> str:
    """The end of the key of a queue's list: Celery keeps one for each priority."""
    return f"{Channel.sep}{step}" if step else ""


COLLECTORS["messages"] = Collector(
    {"tiltyard_messages": Figure("Messages at the broker that no worker has taken, of all priorities.", ("queue",))},
    _messages,
    database=False,
)


def _environments() -> Iterator[Sample]:
    states, slots = Counter[str](), Counter[str]()
    for state, checked, *reported in rows_of(_servers):
        states[state if checked else "unchecked"] += 1
        sessions, size = (number_in(each or "") for each in reported)
        if checked and state == ReplicaState.HEALTHY and sessions is not None and size is not None:
            slots["taken"] += sessions
            slots["free"] += max(0, size - sessions)
    for state in (*ReplicaState.values, "unchecked"):
        yield Sample("tiltyard_environment_servers", states[state], (state,))
    for use, count in sorted(slots.items()):
        yield Sample("tiltyard_environment_slots", count, (use,))


def _servers() -> QuerySet[Any, Any]:
    fresh = Q(checked_at__gt=Now() - timedelta(seconds=STALE_AFTER_S))
    reported = (KeyTextTransform(name, "health") for name in ("sessions", "slots"))
    return Replica.objects.order_by().values_list("state", ExpressionWrapper(fresh, BooleanField()), *reported)


COLLECTORS["environments"] = Collector(
    {
        "tiltyard_environment_servers": Figure(
            f"Environment servers by state; unchecked: the keeper has not looked for {STALE_AFTER_S} s.", ("state",)
        ),
        "tiltyard_environment_slots": Figure(
            "Sessions of healthy servers that report them, taken or free; absent where none does.", ("use",)
        ),
    },
    _environments,
)


def _disk() -> Iterator[Sample]:
    place = Path(settings.DATA_DIR)
    disk = shutil.disk_usage(place)
    yield Sample("tiltyard_data_free_bytes", disk.free)
    yield Sample("tiltyard_data_size_bytes", disk.total)
    yield Sample("tiltyard_data_reserve_bytes", reserve_bytes(place))


COLLECTORS["disk"] = Collector(
    {
        "tiltyard_data_free_bytes": Figure("Free bytes on the disk of the data folder."),
        "tiltyard_data_size_bytes": Figure("Size of that disk in bytes."),
        "tiltyard_data_reserve_bytes": Figure("Bytes that trainers leave free there; below, runs pause."),
    },
    _disk,
    database=False,
)


def _version() -> Iterator[Sample]:
    yield Sample("tiltyard_build_info", 1, (settings.PRODUCT_VERSION,))


COLLECTORS["version"] = Collector(
    {"tiltyard_build_info": Figure("Always 1; its label is the version of the web server.", ("version",))},
    _version,
    database=False,
)


FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via")
"""Headers of a proxy: through one on this machine everybody would have a loopback address."""


@never_cache
@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Figures of the whole installation, from whichever web process is asked: for the bearer of
    ``TILTYARD_METRICS_TOKEN``, and without that setting for this machine alone."""
    refusal = _refusal(request)
    if refusal is not None:
        return refusal
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(Scrape()), content_type=content_type)


class InsideMiddleware:
    """Answer a monitor that asks by ``TILTYARD_METRICS_HOST``, a name inside our network such as ``web:8000``.

    That name is none of ``TILTYARD_HOSTS``: a page that is asked for by it would have addresses that no browser finds.
    So this path alone is answered, before hosts are checked and requests without TLS are sent elsewhere, and only to
    the bearer of the token.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        inside = settings.METRICS_HOST and request.META.get("HTTP_HOST") == settings.METRICS_HOST
        if inside and settings.METRICS_TOKEN and request.path == "/metrics":
            return metrics(request)
        return self.get_response(request)


def _refusal(request: HttpRequest) -> HttpResponse | None:
    if not settings.METRICS_TOKEN:
        if _is_local(request):
            return None
        why = _("Without TILTYARD_METRICS_TOKEN, only this machine may read the metrics, and not through a proxy.")
        return JsonResponse(error_body(request, "forbidden", why), status=403)
    if hmac.compare_digest(bearer(request).encode(), settings.METRICS_TOKEN.encode()):
        return None
    why = _("Send the token of TILTYARD_METRICS_TOKEN as “Authorization: Bearer …”.")
    headers = {"WWW-Authenticate": "Bearer"}
    return JsonResponse(error_body(request, "login_required", why), status=401, headers=headers)


def _is_local(request: HttpRequest) -> bool:
    if any(name in request.headers for name in FORWARDED):
        return False
    try:
        address = ip_address(client_address(request))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
