"""Reading endpoints, for lists, pages, forms and the page of a run."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Exists, Max, OuterRef, Q, QuerySet, Sum
from django.utils import timezone
from django.utils.translation import gettext as _

from webapp.common.secrets.models import Kind, Secret
from webapp.endpoints.models import Endpoint, EndpointSpend
from webapp.endpoints.services import runs_naming
from webapp.endpoints.spending import Used, used_by_run, used_on
from webapp.people.teams.models import Project
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.states import TERMINAL

DAYS_SHOWN = 14
RUNS_SHOWN = 20


class Row(NamedTuple):
    """An endpoint as the list shows it."""

    item: Endpoint
    state: str
    has_key: bool
    today: Used
    total: Used


class Bar(NamedTuple):
    """Something used against its limit; ``limit`` is empty where there is none, ``share`` at most 1."""

    title: str
    used: str
    limit: str = ""
    share: float | None = None


class RunSpend(NamedTuple):
    """A run's use of its endpoint; ``endpoint`` is ``None`` where the project has none of that name (any more)."""

    name: str
    model: str
    endpoint: Endpoint | None
    bars: list[Bar]
    live: bool
    priced: bool


class Day(NamedTuple):
    """The use on one day, and by which runs and chats."""

    day: date
    used: Used
    users: list[EndpointSpend]


def endpoints_of(project: Project) -> QuerySet[Endpoint]:
    """The project's endpoints by name."""
    return Endpoint.objects.filter(project=project).select_related("project").order_by("name")


def endpoint_named(project: Project, name: str) -> Endpoint | None:
    """The endpoint with this name in the project."""
    return endpoints_of(project).filter(name=name).first()


def endpoint_state(item: Endpoint) -> str:
    """``untested``, or the result of the last test: ``ok``, ``doubt`` or ``bad``."""
    return str((item.test or {}).get("state", "untested"))


def with_use(endpoints: QuerySet[Endpoint]) -> QuerySet[Endpoint]:
    """Endpoints with what ``row_of`` needs, in one query."""
    today = Q(spending__day=timezone.localdate())
    return endpoints.annotate(
        keyed=Exists(Secret.objects.filter(kind=Kind.ENDPOINT_KEY, owner=OuterRef("pk"))),
        tokens=Sum("spending__tokens"),
        cost=Sum("spending__cost"),
        last_at=Max("spending__last_at"),
        day_tokens=Sum("spending__tokens", filter=today),
        day_cost=Sum("spending__cost", filter=today),
    )


def row_of(item: Endpoint) -> Row:
    """One of ``with_use``, with what was used today and in all."""
    values: Any = item if hasattr(item, "day_tokens") else with_use(endpoints_of(item.project)).filter(pk=item.pk)[0]
    day = Used(values.day_tokens or 0, values.day_cost)
    total = Used(values.tokens or 0, values.cost, values.last_at)
    return Row(item, endpoint_state(item), values.keyed, day, total)


def money(value: float | None, currency: str) -> str:
    """An amount; without a price there is none, which is not 0."""
    if value is None:
        return _("no price set")
    text = f"{value:,.2f}" if value == 0 or value >= 0.1 else f"{value:.2g}"
    return f"{text} {currency}".strip()


def cost_text(endpoint: Endpoint, used: Used) -> str:
    """A cost as text: no use yet is 0 only where a price is set."""
    return money(0.0 if used.cost is None and endpoint.priced else used.cost, endpoint.currency)


def price_text(endpoint: Endpoint) -> str:
    """The price of a million tokens, as text."""
    if not endpoint.priced:
        return money(None, "")
    amounts = (money(value or 0.0, endpoint.currency) for value in (endpoint.price_in, endpoint.price_out))
    return _("%(input)s read, %(output)s written") % dict(zip(("input", "output"), amounts, strict=True))


def limit_text(endpoint: Endpoint) -> str:
    """The limits of one run, as text."""
    parts = [_("%(n)s tokens") % {"n": f"{endpoint.max_run_tokens:,}"}] if endpoint.max_run_tokens else []
    parts += [money(endpoint.max_run_cost, endpoint.currency)] if endpoint.max_run_cost else []
    return " · ".join(parts) or _("no limit")


def day_bars(endpoint: Endpoint) -> list[Bar]:
    """Today's use against the limits of a day."""
    used = used_on(endpoint)
    return [
        _token_bar(_("Tokens today"), used.tokens, endpoint.max_day_tokens),
        _cost_bar(_("Cost today"), endpoint, used, endpoint.max_day_cost),
    ]


def _token_bar(title: str, used: int, limit: int | None) -> Bar:
    return Bar(title, f"{used:,}", f"{limit:,}" if limit else "", min(1.0, used / limit) if limit else None)


def _cost_bar(title: str, endpoint: Endpoint, used: Used, limit: float | None) -> Bar:
    text = cost_text(endpoint, used)
    if not limit:
        return Bar(title, text)
    return Bar(title, text, money(limit, endpoint.currency), min(1.0, (used.cost or 0.0) / limit))


def run_spend(run: Run) -> RunSpend | None:
    """The figures of the endpoint that plays, for the run's page; ``None`` where none does, or none of the project."""
    config = config_of(run)
    if config is None or not config.asks_endpoint or not config.endpoint.name:
        return None
    place = config.endpoint
    endpoint = endpoint_named(run.project, place.name)
    bars: list[Bar] = []
    if endpoint is not None:
        used = used_by_run(endpoint, run.pk)
        bars = [
            _token_bar(_("Tokens of this run"), used.tokens, place.max_tokens),
            _cost_bar(_("Cost of this run"), endpoint, used, place.max_cost),
            *(bar for bar in day_bars(endpoint) if bar.limit),
        ]
    return RunSpend(place.name, place.model, endpoint, bars, run.state not in TERMINAL, place.priced)


def days_of(endpoint: Endpoint) -> list[Day]:
    """The last days on which it was used, newest first, each with what used it."""
    since = timezone.localdate() - timedelta(days=365)
    rows = list(EndpointSpend.objects.filter(endpoint=endpoint, day__gt=since).order_by("-day", "-tokens")[:2000])
    found: dict[date, list[EndpointSpend]] = {}
    for row in rows:
        found.setdefault(row.day, []).append(row)
    return [Day(day, _summed_use(items), items) for day, items in list(found.items())[:DAYS_SHOWN]]


def _summed_use(rows: list[EndpointSpend]) -> Used:
    costs = [row.cost for row in rows if row.cost is not None]
    last: datetime = max(row.last_at for row in rows)
    return Used(sum(row.tokens for row in rows), sum(costs) if costs else None, last)


def uses_of(endpoint: Endpoint) -> tuple[list[Run], int]:
    """The newest runs whose config names it, and how many there are in all."""
    rows = runs_naming(endpoint).select_related("project")
    return list(rows[:RUNS_SHOWN]), rows.count()


def runs_there(project: Project, days: list[Day]) -> set[UUID]:
    """Those of the runs that used it that can still be opened."""
    ids = {row.run_id for day in days for row in day.users if row.run_id}
    return set(Run.objects.filter(project=project, pk__in=ids).values_list("pk", flat=True))
