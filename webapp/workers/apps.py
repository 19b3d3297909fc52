"""The Celery application of every process, and workers that tell that they live."""

from __future__ import annotations

from celery.signals import celeryd_after_setup, worker_ready, worker_shutdown
from django.apps import AppConfig


class WorkersConfig(AppConfig):
    """The workers of an installation."""

    name = "webapp.workers"

    def ready(self) -> None:
        """Make ours the application of every ``shared_task``; hear Celery's workers."""
        import webapp.celery  # noqa: F401
        from webapp.workers import beating

        celeryd_after_setup.connect(beating.name_children, dispatch_uid="workers.name")
        worker_ready.connect(beating.begin_beating, dispatch_uid="workers.ready")
        worker_shutdown.connect(beating.end_beating, dispatch_uid="workers.shutdown")
