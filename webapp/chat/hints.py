"""Asking for a worker that answers chats."""

from __future__ import annotations

import logging
from datetime import timedelta

from celery import current_app
from django.db.models import QuerySet
from django.db.models.functions import Now

from webapp.chat.models import Holder

logger = logging.getLogger(__name__)
HINT = "chat.hold"
EXPIRES_S = 20  # ``chat.look`` asks again
LIVES_FOR = timedelta(seconds=8)


def holders(*pools: str) -> QuerySet[Holder]:
    """Workers of these pools that answer chats now: they find what waits by themselves."""
    return Holder.objects.filter(pool__in=pools, heard_at__gt=Now() - LIVES_FOR)


def hint(pool: str) -> None:
    """Ask for a worker. A broker that is down costs only time."""
    try:
        current_app.send_task(HINT, args=[pool], queue=pool, retry=False, expires=EXPIRES_S)
    except Exception as exc:  # the boundary to the broker: kombu, redis and socket errors alike
        logger.warning("broker away, chat waits", extra={"action": "chat", "error": repr(exc)[:200]})
