"""A message as a worker has it. Only workers import this: it brings Celery's own worker with it."""

from __future__ import annotations

from datetime import datetime, timedelta

from celery.worker.request import Request

from webapp.common.database import last_ahead_s


class SharedClockRequest(Request):
    """Whether it has expired is decided by the database's clock."""

    _expires: datetime | None

    def maybe_expire(self) -> bool:
        """As Celery's own, which asks this host's clock: one that is an hour ahead would drop every message.

        Runs in the main process, which must not wait for the database: the beat of the worker measures.
        """
        kept, self._expires = self._expires, self._expires and self._expires + timedelta(seconds=last_ahead_s())
        try:
            return bool(super().maybe_expire())
        finally:
            self._expires = kept
