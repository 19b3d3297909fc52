"""Is this installation well? For load balancers and monitors, which have no login: they show no name, no address,
and no counts but those of waiting work.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from training.machine import write_refusal
from webapp.common.errors import DATABASE_AWAY
from webapp.runs.models import ReaperMark
from webapp.site.home.places import all_loads

# --- Clock ----------------------------------------------------------------------------------------------------------
# The age of the clockwork's last look at leases, which it notes itself.

LATE_S = 30.0
"""The clockwork looks every five seconds; a busy machine delays it by some."""


def clock_age() -> float | None:
    """Seconds since it looked for expired leases; ``None`` where it never did."""
    found = ReaperMark.objects.order_by().values_list(Now() - F("ran_at"), flat=True).first()
    return max(0.0, found.total_seconds()) if found is not None else None


def is_late(age_s: float | None) -> bool:
    """Whether the clockwork is so late that runs of lost workers are not given back."""
    return age_s is None or age_s > LATE_S


KEPT_S = 1.0
"""For how many seconds an answer is reused."""
BROKER_S = 2.0


@never_cache
@require_GET
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer 200: this process works; nothing else is checked."""
    return HttpResponse("ok\n", content_type="text/plain")


@never_cache
@require_GET
def readyz(request: HttpRequest) -> JsonResponse:
    """Database, broker, clockwork and the data folder's disk: 200 while all of them work, else 503, and how full the
    pools of workers are."""
    found = cache.get("readyz")
    if found is None:
        found = _read_health()
        cache.set("readyz", found, KEPT_S)
    return JsonResponse(found, status=200 if found["ok"] else 503)


def _read_health() -> dict[str, Any]:
    disk = write_refusal(Path(settings.DATA_DIR)) is None
    try:
        age_s, pools = clock_age(), [asdict(load) for load in all_loads()]
    except DATABASE_AWAY:
        connection.close()
        away = {"ok": False, "database": False, "broker": _broker_answers(), "disk": disk}
        return away | {"clock_age_seconds": None, "pools": []}
    broker = _broker_answers()
    well = broker and disk and not is_late(age_s)
    found = {"ok": well, "database": True, "broker": broker, "disk": disk}
    return found | {"clock_age_seconds": age_s, "pools": pools}


def _broker_answers() -> bool:
    limits = {"socket_timeout": BROKER_S, "socket_connect_timeout": BROKER_S}
    try:
        with redis.Redis.from_url(settings.CELERY_BROKER_URL, **limits) as client:
            return bool(client.ping())
    except (redis.RedisError, OSError):
        return False
