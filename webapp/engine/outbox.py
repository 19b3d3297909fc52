"""The outbox: a nudge to the workers is a row first and a message second, so a dead broker loses nothing.

1. The code that queues a run adds a row in the same transaction.
2. After the commit the message is sent; if that fails the row stays unsent.
3. A periodic task sends what is unsent and drops old rows. Sending twice is harmless: the lease decides.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from celery import current_app
from django.db import transaction
from django.db.models.functions import Now

from webapp.runs.models import Outbox, Run

logger = logging.getLogger(__name__)
SEND_AT_ONCE = 100
KEEP = timedelta(hours=1)
MESSAGE_EXPIRES_S = 300  # the reaper nudges again, so a message that no worker took may expire


def add(run: Run) -> None:
    """Add a row so that workers hear of this run, and send their message once the transaction is committed."""
    row = Outbox.objects.create(run=run)
    transaction.on_commit(lambda: _send_message(row), robust=True)


def send_unsent() -> int:
    """Send every waiting nudge, oldest first, until the broker fails; return how many went out. Drop old rows."""
    sent = 0
    for row in Outbox.objects.filter(sent_at=None).select_related("run").order_by("id")[:SEND_AT_ONCE]:
        if not _send_message(row):
            break
        sent += 1
    Outbox.objects.filter(sent_at__lt=Now() - KEEP).delete()
    return sent


def _send_message(row: Outbox) -> bool:
    try:
        pool = row.run.pool
        options = {"queue": pool, "retry": False, "expires": MESSAGE_EXPIRES_S}
        current_app.send_task("runs.supervise", args=[str(row.run_id), pool], **options)
    except Exception as exc:  # the boundary to the broker: kombu, redis and socket errors alike
        logger.warning("broker away, nudge kept", extra={"action": "outbox", "run_id": row.run_id, "error": repr(exc)})
        return False
    Outbox.objects.filter(pk=row.pk, sent_at=None).update(sent_at=Now())
    return True
