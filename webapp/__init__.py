"""The Django application. Importing it makes the Celery app the default one for ``shared_task``."""

from webapp.celery import app as celery_app

__all__ = ["celery_app"]
