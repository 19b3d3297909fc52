"""What runs and chats used of endpoints: written as it is reported, summed for pages, compared with the limits.

A run reports its total use, its earlier attempts included; the difference to what is known already belongs to the day
of the report. The caller holds the run's lease, so no other process writes its rows. A chat reports each turn.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import F, FilteredRelation, FloatField, Max, Q, Sum, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from training.config import cost_of
from training.errors import BudgetSpent
from training.words import Sentence, _, sentence
from webapp.endpoints.models import Endpoint, EndpointSpend

DAY_HINT = _("Raise the endpoint's limit for a day, or resume tomorrow.")
CHAT_DAY_HINT = _("Raise the endpoint's limit for a day, or continue tomorrow.")
CHAT_HINT = _("Raise the endpoint's limit for a run, or start another chat.")


DAY_COST = _("The project has spent {spent} at the endpoint {name} today, and may spend {limit} a day.")
DAY_TOKENS = _("The project has used {used} tokens of the endpoint {name} today, and may use {limit} a day.")
BY_DAY = (DAY_COST, DAY_TOKENS)
"""The limits of a day: a run that paused for one of them may continue tomorrow."""


class Used(NamedTuple):
    """Tokens, and money where a price was set; ``last_at`` is the last use."""

    tokens: int = 0
    cost: float | None = None
    last_at: datetime | None = None


def run_used(
    *, project_id: UUID, name: str, run_id: UUID, run_name: str, tokens: int, cost: float | None, at: datetime
) -> None:
    """Record the total use of an endpoint by a run. A deleted endpoint keeps no record."""
    endpoint = Endpoint.objects.filter(project_id=project_id, name=name).first()
    if endpoint is None:
        return
    known = used_by_run(endpoint, run_id)
    more = None if cost is None else max(0.0, cost - (known.cost or 0.0))
    spend_add(endpoint, tokens=max(0, tokens - known.tokens), cost=more, at=at, run_id=run_id, name=run_name)


def turn_used(endpoint: Endpoint, *, read: int, written: int, chat_id: UUID | None = None, title: str = "") -> None:
    """Record the tokens of one request: a turn of a chat, or without one a test."""
    cost = cost_of(read, written, endpoint.price_in or 0.0, endpoint.price_out or 0.0)
    spend_add(
        endpoint,
        tokens=read + written,
        cost=cost if endpoint.priced else None,
        at=timezone.now(),
        chat_id=chat_id,
        name=title[:80],
    )


def spend_add(
    endpoint: Endpoint,
    *,
    tokens: int,
    cost: float | None,
    at: datetime,
    run_id: UUID | None = None,
    chat_id: UUID | None = None,
    name: str = "",
) -> None:
    """Add to the row of the day; with neither a run nor a chat it was a test. Use is never subtracted again."""
    tokens = max(0, tokens)
    fresh = {"name": name, "last_at": at}
    row, _made = EndpointSpend.objects.get_or_create(
        endpoint=endpoint, run_id=run_id, chat_id=chat_id, day=timezone.localdate(at), defaults=fresh
    )
    values = {"tokens": F("tokens") + tokens, "last_at": at}
    if cost is not None:
        values["cost"] = Coalesce(F("cost"), Value(0.0), output_field=FloatField()) + max(0.0, cost)
    EndpointSpend.objects.filter(pk=row.pk).update(**values)


def _used_of(rows: Q) -> Used:
    found = EndpointSpend.objects.filter(rows).aggregate(tokens=Sum("tokens"), cost=Sum("cost"), last_at=Max("last_at"))
    return Used(found["tokens"] or 0, found["cost"], found["last_at"])


def used_by_run(endpoint: Endpoint, run_id: UUID) -> Used:
    """How much a run has used of it so far."""
    return _used_of(Q(endpoint=endpoint, run_id=run_id))


def used_on(endpoint: Endpoint, day: date | None = None) -> Used:
    """How much all have used of it on a day, today unless given."""
    return _used_of(Q(endpoint=endpoint, day=day or timezone.localdate()))


class DayLimit(NamedTuple):
    """An endpoint with limits of a day, and what all have used of it today."""

    endpoint: Endpoint
    used: Used

    @property
    def cost(self) -> str:
        """Money spent today of what may be spent; empty without such a limit."""
        most = self.endpoint.max_day_cost
        if not most:
            return ""
        return f"{self.used.cost or 0.0:.4g} / {most:.4g} {self.endpoint.currency}".strip()

    @property
    def tokens(self) -> str:
        """Tokens used today of what may be used; empty without such a limit."""
        most = self.endpoint.max_day_tokens
        return f"{self.used.tokens:,} / {most:,}" if most else ""


def endpoint_days(projects: Collection[UUID]) -> dict[UUID, list[DayLimit]]:
    """The endpoints of projects that have a limit of a day, by name, with their use today."""
    limited = Q(max_day_cost__gt=0) | Q(max_day_tokens__gt=0)
    today = FilteredRelation("spending", condition=Q(spending__day=timezone.localdate()))
    rows = Endpoint.objects.filter(limited, project__in=projects).annotate(today=today)
    found: dict[UUID, list[DayLimit]] = {}
    for row in rows.annotate(used_tokens=Sum("today__tokens"), used_cost=Sum("today__cost")).order_by("name"):
        used = Used(row.used_tokens or 0, row.used_cost)
        found.setdefault(row.project_id, []).append(DayLimit(row, used))
    return found


def used_by_chat(endpoint: Endpoint, chat_id: UUID) -> Used:
    """How much a chat has used of it so far."""
    return _used_of(Q(endpoint=endpoint, chat_id=chat_id))


def day_limit(endpoint: Endpoint) -> BudgetSpent | None:
    """The error that pauses a run which may not use the endpoint today any more; ``None`` while it may."""
    if not (endpoint.max_day_tokens or endpoint.max_day_cost):
        return None
    return _day_over(endpoint, used_on(endpoint))


def _day_over(endpoint: Endpoint, used: Used) -> BudgetSpent | None:
    if endpoint.max_day_cost and (used.cost or 0.0) >= endpoint.max_day_cost:
        return BudgetSpent(_spent_sentence(DAY_COST, endpoint, used, endpoint.max_day_cost), hint=DAY_HINT)
    if endpoint.max_day_tokens and used.tokens >= endpoint.max_day_tokens:
        message = sentence(DAY_TOKENS, name=endpoint.name, used=used.tokens, limit=endpoint.max_day_tokens)
        return BudgetSpent(message, hint=DAY_HINT)
    return None


def _chat_over(endpoint: Endpoint, used: Used) -> BudgetSpent | None:
    if endpoint.max_run_cost and (used.cost or 0.0) >= endpoint.max_run_cost:
        text = _("This chat has spent {spent} at the endpoint {name}, and may spend {limit}.")
        return BudgetSpent(_spent_sentence(text, endpoint, used, endpoint.max_run_cost), hint=CHAT_HINT)
    if endpoint.max_run_tokens and used.tokens >= endpoint.max_run_tokens:
        text = _("This chat has used {used} tokens of the endpoint {name}, and may use {limit}.")
        message = sentence(text, name=endpoint.name, used=used.tokens, limit=endpoint.max_run_tokens)
        return BudgetSpent(message, hint=CHAT_HINT)
    return None


def chat_left(endpoint: Endpoint, chat_id: UUID) -> Used:
    """How much an answer of a chat may use before a limit of a day or of a chat is reached; the limit of one run is
    also that of one chat. 0 and ``None`` where there is no limit. Raises ``BudgetSpent`` where nothing is left."""
    chat, day = used_by_chat(endpoint, chat_id), used_on(endpoint)
    if over := _day_over(endpoint, day):
        raise BudgetSpent(over.message, hint=CHAT_DAY_HINT)
    if over := _chat_over(endpoint, chat):
        raise over
    tokens = ((endpoint.max_run_tokens, chat.tokens), (endpoint.max_day_tokens, day.tokens))
    costs = ((endpoint.max_run_cost, chat.cost), (endpoint.max_day_cost, day.cost))
    return Used(
        min((most - used for most, used in tokens if most), default=0),
        min((most - (used or 0.0) for most, used in costs if most), default=None),
    )


def _spent_sentence(text: str, endpoint: Endpoint, used: Used, most: float) -> Sentence:
    spent, limit = (f"{value:.4g} {endpoint.currency}".strip() for value in (used.cost or 0.0, most))
    return sentence(text, name=endpoint.name, spent=spent, limit=limit)


def day_over(project_id: UUID, name: str) -> BudgetSpent | None:
    """The same for the endpoint of a name; ``None`` where there is none."""
    endpoint = Endpoint.objects.filter(project_id=project_id, name=name).first() if name else None
    return day_limit(endpoint) if endpoint is not None else None
