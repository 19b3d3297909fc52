"""Reading environments: what lists, pages and charts show."""

from __future__ import annotations

import math
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Count, Prefetch, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.errors import SecretUnreadable, TiltyardError
from webapp.common.pools import ENDPOINT, TRAIN
from webapp.common.text import figure, percent
from webapp.datasets.models import DatasetState
from webapp.datasets.selectors import percent_of
from webapp.environments.builtin import command_text, option_text
from webapp.environments.checks import Answer, Server, ask, require_identity, validation_sentence
from webapp.environments.keeper import largest, total
from webapp.environments.models import MAX_REPLICAS, DatasetOrder, Environment, EnvironmentSample, Replica, ReplicaState
from webapp.environments.orders import OPEN, orders_of
from webapp.environments.services import server_of
from webapp.people.teams.models import Project
from webapp.runs.config import having
from webapp.runs.models import Run
from webapp.runs.records.order import can_start
from webapp.runs.records.sessions import rooms_of, sessions_in
from webapp.runs.states import LEASED

STALE_AFTER_S = 90
HISTORY = timedelta(hours=24)
POINTS = 480  # a chart is no wider
RUNS_SHOWN = 10
ORDERS_SHOWN = 8


class HealthView(NamedTuple):
    """One environment for a row of the list."""

    state: str  # ok, degraded, bad, unknown, starting, stopped
    version: str
    sessions: int | None
    slots: int | None
    steps_per_s: float | None
    p50_ms: float | None
    p95_ms: float | None
    healthy: int
    replicas: int
    checked_s: int | None
    stale: bool
    error: str
    hint: str
    baselines: list[str]


def environments_of(project: Project) -> QuerySet[Environment]:
    """The project's environments by name, each with its replicas."""
    replicas = Prefetch("replicas", Replica.objects.order_by("number"))
    return (
        Environment.objects.filter(project=project)
        .select_related("project")
        .prefetch_related(replicas)
        .order_by("name")
    )


def environment_named(project: Project, name: str) -> Environment | None:
    """The environment with this name in the project."""
    return environments_of(project).filter(name=name).first()


def health_view(environment: Environment) -> HealthView:
    """An environment in the words of the list: sums over the replicas that answer."""
    replicas = list(environment.replicas.all())
    healthy = [item for item in replicas if item.state == ReplicaState.HEALTHY]
    reported = [item.health for item in healthy]
    loads = [item.get("load") or {} for item in reported]
    error = _shown_error(environment, replicas) if not healthy else {}
    checked_s = None
    if environment.checked_at:
        checked_s = max(0, int((timezone.now() - environment.checked_at).total_seconds()))
    return HealthView(
        state=_health_state(environment, replicas, healthy),
        version=str(environment.health.get("version", ""))[:80],
        sessions=total(item.get("sessions") for item in reported),
        slots=total(item.get("slots") for item in reported),
        steps_per_s=total(load.get("steps_per_s") for load in loads),
        p50_ms=largest(load.get("p50_ms") for load in loads),
        p95_ms=largest(load.get("p95_ms") for load in loads),
        healthy=len(healthy),
        replicas=environment.wanted,
        checked_s=checked_s,
        stale=checked_s is not None and checked_s > STALE_AFTER_S and environment.wanted > 0,
        error=_(str(error.get("message", ""))) if error.get("message") else "",
        hint=_(str(error.get("hint", ""))) if error.get("hint") else "",
        baselines=baseline_texts(environment.baselines()),
    )


def _health_state(environment: Environment, replicas: list[Replica], healthy: list[Replica]) -> str:
    if healthy:
        whole = len(healthy) >= environment.wanted and all(item.health.get("status") != "degraded" for item in healthy)
        return "ok" if whole else "degraded"
    if environment.launched and not environment.wanted:
        return "stopping" if replicas else "stopped"
    broken = (ReplicaState.FAILED, ReplicaState.UNHEALTHY)
    if any(item.state in broken or (item.error and not item.handle) for item in replicas):
        return "bad"
    if environment.launched:
        return "starting"
    return "unknown" if environment.healthy is None else ("ok" if environment.healthy else "bad")


def _shown_error(environment: Environment, replicas: list[Replica]) -> dict[str, Any]:
    found = next((item.error for item in replicas if item.error), None)
    return found or (environment.health.get("error") if not environment.launched else None) or {}


def baseline_texts(baselines: list[dict[str, Any]]) -> list[str]:
    """“rules: 0.79 mean, 58% success over 300 episodes”."""
    return [
        _("%(name)s: %(reward)s mean, %(success)s success over %(episodes)s episodes")
        % {
            "name": str(item.get("name", ""))[:80],
            "reward": f"{item['reward']:.2f}",
            "success": percent(item["success"]),
            "episodes": item["episodes"],
        }
        for item in baselines
    ]


def baseline_short(baselines: list[dict[str, Any]]) -> list[str]:
    """“rules: reward 0.79, success 58%”."""
    return [
        _("%(name)s: reward %(reward)s, success %(success)s")
        % {
            "name": str(item.get("name", ""))[:80],
            "reward": figure(item["reward"], 2),
            "success": percent(item["success"]),
        }
        for item in baselines
    ]


def argument_texts(environment: Environment, *, only: Collection[str] | None = None) -> list[tuple[str, str]]:
    """The options of its server that differ from their defaults: title and value."""
    program = environment.built_in
    found = []
    for option in program.options if program else []:
        value = environment.arguments.get(option.name)
        if program and value is not None and (only is None or option.name in only):
            text = option_text(program.name, option.name)
            found.append((str(text.label), _("yes") if value is True else str(value)))
    return found


def order_rows(environment: Environment) -> dict[str, Any]:
    """The newest datasets that were asked of it, and whether one is still under way."""
    orders = list(orders_of(environment)[:ORDERS_SHOWN])
    rows = [_order_row(order) for order in orders]
    checking = (order.dataset is not None and order.dataset.state == DatasetState.CHECKING for order in orders)
    return {"orders": rows, "busy": any(order.state in OPEN for order in orders) or any(checking)}


def _order_row(order: DatasetOrder) -> dict[str, Any]:
    error = order.error or {}
    return {
        "order": order,
        "what": command_text(order.command).label,
        "percent": percent_of(order.dataset) if order.dataset else 0,
        "error": _(str(error["message"])) if error.get("message") else "",
        "hint": _(str(error["hint"])) if error.get("hint") else "",
    }


class ReplicaRow(NamedTuple):
    """One replica as the table shows it."""

    number: int
    url: str
    state: str
    label: str
    badge: str
    sessions: int | None
    slots: int | None
    steps_per_s: float | None
    p95_ms: float | None
    started_at: datetime | None
    restarts: int
    restarting: bool
    error: str
    hint: str
    log: list[str]


BADGES = {"starting": "preparing", "healthy": "ok", "unhealthy": "bad", "stopping": "stopping", "failed": "failed"}


def replica_rows(environment: Environment) -> list[ReplicaRow]:
    """The replicas by number; figures only of those that answer."""
    return [_replica_row(item) for item in environment.replicas.all()]


def _replica_row(item: Replica) -> ReplicaRow:
    health = item.health if item.state == ReplicaState.HEALTHY else {}
    load, error = health.get("load") or {}, item.error or {}
    return ReplicaRow(
        item.number,
        item.url,
        item.state,
        str(ReplicaState(item.state).label),
        BADGES[item.state],
        health.get("sessions"),
        health.get("slots"),
        load.get("steps_per_s"),
        load.get("p95_ms"),
        item.started_at,
        item.restarts,
        bool(item.wish),
        _(str(error["message"])) if error.get("message") else "",
        _(str(error["hint"])) if error.get("hint") else "",
        [str(line) for line in error.get("log", [])],
    )


class ValidationView(NamedTuple):
    """The last validation of an environment's server."""

    ok: bool
    sentence: str
    at: datetime | None


def validation_view(environment: Environment) -> ValidationView | None:
    """The last validation; ``None`` where there was none."""
    found = environment.validation
    if not found:
        return None
    return ValidationView(bool(found.get("ok")), validation_sentence(found), parse_datetime(str(found.get("at", ""))))


def runs_on(environment: Environment) -> QuerySet[Run]:
    """The newest runs whose config names this environment."""
    runs = Run.objects.filter(having("environment", "name", environment.reference), project_id=environment.project_id)
    return runs.order_by("-created_at")[:RUNS_SHOWN]


def history(environment: Environment) -> dict[str, Any]:
    """The samples of the last day, thinned to what a chart can show; a bucket without a known value is a gap."""
    rows = list(
        EnvironmentSample.objects.filter(environment=environment, at__gte=timezone.now() - HISTORY).order_by("at")
    )
    size = -(-len(rows) // POINTS) or 1
    buckets = [rows[at : at + size] for at in range(0, len(rows), size)]
    codes = sorted({code for row in rows for code in row.errors})[:8]
    names = ("sessions", "slots", "steps_per_s", "p50_ms", "p95_ms")
    return {
        "at": [bucket[-1].at.isoformat() for bucket in buckets],
        **{name: [largest(getattr(row, name) for row in bucket) for bucket in buckets] for name in names},
        "errors": {code: [sum(row.errors.get(code, 0) for row in bucket) for bucket in buckets] for code in codes},
    }


# --- Capacity -------------------------------------------------------------------------------------------------------
# The free sessions of an environment now, over all replicas that answer, and how many more could be started.

ASK_LIMIT_S = 8.0


class Room(NamedTuple):
    """Sums over the replicas that answer; ``None`` where one of them does not say. ``problem`` is the first failure."""

    answering: int
    asked: int
    slots: int | None
    free: int | None
    problem: TiltyardError | None


def room_of(environment: Environment) -> Room:
    """Ask every replica at once. Takes as long as the slowest, at most ``ASK_LIMIT_S``."""
    try:
        servers = [server_of(environment, url) for url in environment.addresses()]
    except SecretUnreadable as exc:
        return Room(0, len(environment.addresses()), None, None, exc)
    if not servers:
        return Room(0, 0, None, None, None)
    with ThreadPoolExecutor(len(servers), thread_name_prefix="room") as pool:
        outcomes = list(pool.map(lambda server: _ask_server(server, environment.server_name), servers))
    answers = [item for item in outcomes if isinstance(item, Answer)]
    problem = next((item for item in outcomes if isinstance(item, TiltyardError)), None)
    return Room(
        len(answers),
        len(servers),
        _sum_if_known([item.slots for item in answers]),
        _sum_if_known([item.free for item in answers]),
        problem,
    )


def _ask_server(server: Server, wanted: str) -> Answer | TiltyardError:
    try:
        answer = ask(server, total_s=ASK_LIMIT_S)
        require_identity(answer, wanted)
    except TiltyardError as exc:
        return exc
    return answer


def _sum_if_known(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def replicas_to_add(environment: Environment, room: Room, needed: int) -> int:
    """How many more replicas would make enough room; 0 when we do not start this environment or may not."""
    missing = needed - (room.free or 0)
    if not environment.launched or missing <= 0:
        return 0
    # Wanted replicas that do not answer yet count as starting.
    coming = max(0, environment.wanted - room.answering)
    more = math.ceil(missing / environment.slots) - coming
    return max(0, min(more, MAX_REPLICAS - environment.wanted))


# The sessions of an environment that runs have reserved, and the queued runs that play in it, as claims count them.
#
# A run plays only in environments of its own project, so a reader who sees an environment sees these runs.


class Reservation(NamedTuple):
    """A run at work, and how many sessions it has reserved."""

    run_id: UUID
    run: str
    sessions: int


class Reservations(NamedTuple):
    """The sessions of one environment.

    ``slots`` are those that its answering servers hold together; ``None`` where none answers or one does not say: then
    they are not counted, and no run waits for them. ``queued`` runs could start if a worker took them; ``waiting`` are
    those of them that need more sessions than are free now.
    """

    slots: int | None
    sessions: int
    runs: list[Reservation]
    queued: int
    waiting: int

    @property
    def title(self) -> str:
        """How many sessions runs have reserved, and how many runs wait for some."""
        return " ".join(filter(None, (self._reserved_text(), self._queued_text())))

    def _reserved_text(self) -> str:
        values = {"n": len(self.runs), "sessions": self.sessions, "slots": self.slots}
        if self.slots is None:
            return _("Its sessions are not counted now: no server answers, or one does not say how many it holds.")
        if not self.runs:
            return _("Runs have reserved none of its %(slots)d sessions.") % values
        text = ngettext(
            "%(n)d run at work has reserved %(sessions)d of its %(slots)d sessions.",
            "%(n)d runs at work have reserved %(sessions)d of its %(slots)d sessions.",
            len(self.runs),
        )
        return text % values

    def _queued_text(self) -> str:
        values = {"n": self.queued, "waiting": self.waiting}
        if not self.queued:
            return ""
        if not self.waiting:
            return ngettext("%(n)d queued run plays in it.", "%(n)d queued runs play in it.", self.queued) % values
        text = ngettext(
            "%(n)d queued run plays in it; too few sessions are free for it.",
            "%(n)d queued runs play in it; too few sessions are free for %(waiting)d of them.",
            self.queued,
        )
        return text % values


def reservations_of(environment: Environment) -> Reservations:
    """The sessions of an environment as claims count them now; runs at work in the order in which they were made."""
    room = rooms_of([environment.project_id]).get(environment.pk)
    named = {"project": environment.project_id, "imported": False, "sessions__contains": str(environment.pk)}
    at_work = Run.objects.filter(**named, state__in=LEASED).order_by("created_at", "pk")
    runs = []
    for pk, name, text in at_work.values_list("pk", "name", "sessions"):
        at_once = sessions_in(text)[environment.pk]
        runs.append(Reservation(pk, name, room.taken_by(at_once) if room else at_once))
    reserved, queued, waiting = sum(each.sessions for each in runs), 0, 0
    alike = can_start(TRAIN, ENDPOINT).filter(**named).values_list("sessions").annotate(runs=Count("pk"))
    for text, count in alike:
        queued += count
        if room and reserved + room.taken_by(sessions_in(text)[environment.pk]) > room.slots:
            waiting += count
    return Reservations(room.slots if room else None, reserved, runs, queued, waiting)
