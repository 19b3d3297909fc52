"""Operating one machine: the checks of every start, and the report that a process is ready."""

from __future__ import annotations

from celery.signals import heartbeat_sent, worker_ready
from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db.backends.signals import connection_created

from training.floors import floors_broken
from webapp import celery  # noqa: F401 - every ``shared_task`` belongs to the application that is made there
from webapp.common.database import set_session
from webapp.common.host import say_alive, say_ready


class OpsConfig(AppConfig):
    """Operating one machine."""

    name = "webapp.ops"

    def ready(self) -> None:
        """Refuse packages with known holes; connect to the signals of connections and of Celery's workers."""
        if too_old := floors_broken():
            raise ImproperlyConfigured("\n".join(too_old))
        if not settings.DATABASE_POOL:
            connection_created.connect(set_session, dispatch_uid="ops.connection_created")
        worker_ready.connect(say_ready, dispatch_uid="ops.worker_ready")
        # A worker asks once, before it is ready, whether anything listens to its heartbeats.
        heartbeat_sent.connect(say_alive, dispatch_uid="ops.heartbeat_sent")
