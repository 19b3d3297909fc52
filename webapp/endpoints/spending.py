"""What runs used of endpoints: written as their journals are read, summed for pages, held against the limits of a day.

A run tells what it has used in all, its earlier attempts included; the difference to what is known already belongs to
the day on which it was told. The caller holds the run's lease, so nobody else writes its rows.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import F, FloatField, Max, Q, Sum, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from training.errors import BudgetSpent
from training.words import _, sentence
from webapp.endpoints.models import Endpoint, EndpointSpend

DAY_HINT = _("Raise the endpoint's limit for a day, or resume tomorrow.")


class Used(NamedTuple):
    """Tokens, and money where a price was set; ``last_at`` is the last use."""

    tokens: int = 0
    cost: float | None = None
    last_at: datetime | None = None


def run_used(
    *, project_id: UUID, name: str, run_id: UUID, run_name: str, tokens: int, cost: float | None, at: datetime
) -> None:
    """Take in what a run has used of an endpoint in all by now. One that was deleted keeps no record."""
    endpoint = Endpoint.objects.filter(project_id=project_id, name=name).first()
    if endpoint is None:
        return
    known = used_by_run(endpoint, run_id)
    more = None if cost is None else max(0.0, cost - (known.cost or 0.0))
    spend_add(endpoint, tokens=max(0, tokens - known.tokens), cost=more, at=at, run_id=run_id, run_name=run_name)


def spend_add(
    endpoint: Endpoint, *, tokens: int, cost: float | None, at: datetime, run_id: UUID | None = None, run_name: str = ""
) -> None:
    """Add to the row of the day; without a run it was a test."""
    fresh = {"run_name": run_name, "last_at": at}
    row, _made = EndpointSpend.objects.get_or_create(
        endpoint=endpoint, run_id=run_id, day=timezone.localdate(at), defaults=fresh
    )
    values = {"tokens": F("tokens") + tokens, "last_at": at}
    if cost is not None:
        values["cost"] = Coalesce(F("cost"), Value(0.0), output_field=FloatField()) + cost
    EndpointSpend.objects.filter(pk=row.pk).update(**values)


def _used(rows: Q) -> Used:
    found = EndpointSpend.objects.filter(rows).aggregate(tokens=Sum("tokens"), cost=Sum("cost"), last_at=Max("last_at"))
    return Used(found["tokens"] or 0, found["cost"], found["last_at"])


def used_by_run(endpoint: Endpoint, run_id: UUID) -> Used:
    """What a run has used of it so far."""
    return _used(Q(endpoint=endpoint, run_id=run_id))


def used_on(endpoint: Endpoint, day: date | None = None) -> Used:
    """What all have used of it on a day, today unless given."""
    return _used(Q(endpoint=endpoint, day=day or timezone.localdate()))


def day_limit(endpoint: Endpoint) -> BudgetSpent | None:
    """What a run is paused with that may not ask the endpoint today any more; ``None`` while it may."""
    if not (endpoint.max_day_tokens or endpoint.max_day_cost):
        return None
    used = used_on(endpoint)
    if endpoint.max_day_cost and (used.cost or 0.0) >= endpoint.max_day_cost:
        spent, limit = (
            f"{value:.4g} {endpoint.currency}".strip() for value in (used.cost or 0.0, endpoint.max_day_cost)
        )
        text = _("The project has spent {spent} at the endpoint {name} today, and may spend {limit} a day.")
        return BudgetSpent(sentence(text, name=endpoint.name, spent=spent, limit=limit), hint=DAY_HINT)
    if endpoint.max_day_tokens and used.tokens >= endpoint.max_day_tokens:
        text = _("The project has used {used} tokens of the endpoint {name} today, and may use {limit} a day.")
        told = sentence(text, name=endpoint.name, used=used.tokens, limit=endpoint.max_day_tokens)
        return BudgetSpent(told, hint=DAY_HINT)
    return None


def day_over(project_id: UUID, name: str) -> BudgetSpent | None:
    """The same for the endpoint of a name; ``None`` where there is none."""
    endpoint = Endpoint.objects.filter(project_id=project_id, name=name).first() if name else None
    return day_limit(endpoint) if endpoint is not None else None
