"""How full the pools of places are: those of runs and chats first, then those of people's work."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Count, Min, QuerySet, Sum
from django.utils import timezone

from webapp.chat.hints import holders
from webapp.chat.models import Answer, AnswerState
from webapp.common.pools import ENDPOINT, TRAIN
from webapp.common.work import Load, loads
from webapp.common.workers.beating import living
from webapp.engine.lease import can_start
from webapp.runs.models import Run
from webapp.runs.states import LEASED

POOLS = (TRAIN, ENDPOINT)


def all_loads() -> list[Load]:
    """The load of every pool. Runs that wait for another run do not count: a place would not help them."""
    runs = _counts_by_pool(Run.objects.filter(state__in=LEASED, imported=False), "lease_started_at")
    at_work = [runs, _counts_by_pool(holders(*POOLS), "heard_at")]
    answers = Answer.objects.filter(state=AnswerState.WAITING, token="")
    waiting = [_counts_by_pool(can_start(*POOLS), "queued_at"), _counts_by_pool(answers, "created_at")]
    return [*(_load_of(pool, at_work, waiting) for pool in POOLS), *loads()]


Counted = dict[str, tuple[int, datetime | None]]


def _counts_by_pool(rows: QuerySet[Any], since: str) -> Counted:
    """How many rows of each pool there are, and the earliest time in a column."""
    found = rows.order_by().values_list("pool").annotate(n=Count("pk"), first=Min(since))
    return {pool: (count, first) for pool, count, first in found}


def _load_of(pool: str, at_work: list[Counted], waiting: list[Counted]) -> Load:
    """The load of a pool. Places are those of living workers."""
    places = living(pool).aggregate(n=Sum("places"))["n"] or 0
    busy = sum(each[pool][0] for each in at_work if pool in each)
    found = [each[pool] for each in waiting if pool in each]
    waits = ((timezone.now() - since).total_seconds() for _count, since in found if since is not None)
    return Load(pool, places, busy, sum(count for count, _since in found), max(waits, default=None))
