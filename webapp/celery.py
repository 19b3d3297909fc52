"""The Celery application. Queues are pools of places (``webapp/common/work.py``): `train` has one for each device,
`endpoint` those of runs and chats that ask an endpoint alone, `short` and `long` those of people's work."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
# Django's checks of the code would import every page into every worker; a test makes them.
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")

app = Celery("tiltyard")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.autodiscover_tasks(["webapp.rewards.lab"], related_name="sets")  # below an app
app.autodiscover_tasks(["webapp.common"], related_name="work")
