"""The workers of an installation as they reported last, and the data folder that they must share."""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.db import models
from django.db.models import Value

GONE_AFTER = timedelta(seconds=35)
"""A worker that was silent for three beats counts as gone."""


class DataFolder(models.Model):
    """One row: the identity that ``<data>/identity`` carries on every machine of this installation."""

    identity = models.UUIDField(default=uuid.uuid4, editable=False)
    path = models.CharField(max_length=500, blank=True, help_text="where it is on the site's own host")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return str(self.identity)


class Drain(models.Model):
    """A host whose workers finish what they do and take nothing new. It outlives their rows, so a worker that is
    started again there does not work either."""

    host = models.CharField(max_length=120, primary_key=True, help_text="the part of a worker's name after the @")
    by = models.CharField(max_length=150, blank=True, help_text="user name of the administrator")
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.host


def host_of(worker: str) -> str:
    """The host in a worker's name."""
    return worker.partition("@")[2]


class WorkerRows(models.QuerySet["Worker"]):
    """Workers, whose ``draining`` says whether their host is marked."""

    def with_drains(self) -> WorkerRows:
        """Each with ``draining``."""
        host = models.Func(
            models.OuterRef("name"), Value("@"), Value(2), function="split_part", output_field=models.CharField()
        )
        return self.annotate(draining=models.Exists(Drain.objects.filter(host=host)))


class Worker(models.Model):
    """A Celery worker. It beats while it lives; the row goes with a worker that is shut down in order."""

    name = models.CharField(max_length=120, primary_key=True, help_text="queue@host, as Celery names it")
    pid = models.PositiveIntegerField(default=0)
    queues = models.JSONField(default=list)
    device = models.CharField(max_length=120, blank=True)
    gpu = models.CharField(max_length=80, blank=True, help_text="name of the GPU, of several the one with least memory")
    gpu_bytes = models.BigIntegerField(null=True, help_text="memory of that GPU in bytes")
    gpu_capability = models.CharField(max_length=8, blank=True, help_text="its compute capability in CUDA, as 8.0")
    gpus = models.PositiveSmallIntegerField(default=0, db_default=0, help_text="how many GPUs it sees")
    cluster = models.BooleanField(default=False, db_default=False, help_text="whether it names a Ray cluster")
    devices = models.JSONField(null=True, help_text="workers.devices.Reading of each GPU; null where none is read")
    clock_s = models.FloatField(null=True, help_text="clock.ahead_s of its host; null where it never reported it")
    version = models.CharField(max_length=40, blank=True)
    problem = models.CharField(max_length=20, blank=True, help_text="why it claims nothing: selectors.PROBLEMS")
    places = models.PositiveIntegerField(default=1, db_default=1, help_text="how much it does at a time")
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField()

    objects = WorkerRows.as_manager()
    draining: bool

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
