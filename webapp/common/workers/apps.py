"""Workers that report that they live."""

from __future__ import annotations

from celery.signals import celeryd_after_setup, worker_ready, worker_shutdown
from django.apps import AppConfig


class WorkersConfig(AppConfig):
    """The workers of an installation."""

    name = "webapp.common.workers"

    def ready(self) -> None:
        """Connect to the signals of Celery's workers."""
        from webapp.common.workers import beating

        celeryd_after_setup.connect(beating.name_children, dispatch_uid="workers.name")
        worker_ready.connect(beating.begin_beating, dispatch_uid="workers.ready")
        worker_shutdown.connect(beating.end_beating, dispatch_uid="workers.shutdown")
