"""The Celery application: queue `train` runs one supervised run per device, queue `short` everything else."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")

app = Celery("tiltyard")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.autodiscover_tasks(["webapp.rewards.lab"])
app.autodiscover_tasks(["webapp"], related_name="work")
