"""The workers of an installation as they reported last, and the data folder that they must share."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import NamedTuple

from django.db import models
from django.db.models import Value

from training.config import JobConfig

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


# What a run asks of the worker that trains it, and which workers have it.
#
# A launch writes the needs into the run's row as a short text, ``""`` for none. A worker claims only runs whose needs
# it meets, so a run that asks for more than there is waits for such a worker instead of failing on another.

GIGABYTE = 10**9
UNREADABLE = "?"
"""The needs of a row whose config this version cannot read: any worker may take it, and what starts it says why."""


class Needs(NamedTuple):
    """``gpus`` of at least ``memory`` GB whose name contains ``model``.

    ``or_cpu``: a worker without any GPU does as well, only one with too few does not. ``on_cluster``: a worker that
    submits to a Ray cluster needs nothing itself; ``hosts`` above 1 need such a worker.
    """

    gpus: int = 0
    memory: int = 0
    model: str = ""
    or_cpu: bool = False
    on_cluster: bool = False
    hosts: int = 1

    @classmethod
    def of(cls, config: JobConfig) -> Needs:
        """The needs of a job that takes a device."""
        chosen, by_verl = config.hardware, config.by_verl
        sampler = config.vllm.tensor_parallel if config.samples_with_vllm and config.vllm.mode == "managed" else 1
        devices, hosts = (chosen.of_host, chosen.hosts) if by_verl else (sampler, 1)
        if config.run.device == "cpu":
            return cls(on_cluster=True, hosts=hosts) if hosts > 1 else cls()
        or_cpu = config.run.device == "auto" and not config.needs_gpu
        if or_cpu and devices == 1 and hosts == 1:
            return cls()
        return cls(devices, chosen.gpu_memory, chosen.gpu_model.strip(), or_cpu, by_verl, hosts)

    @classmethod
    def parse(cls, text: str) -> Needs:
        """The needs of a row; none where it cannot be read, so that the trainer's own checks decide."""
        parts = text.split("/")
        if len(parts) != len(cls._fields):
            return cls()
        gpus, memory, model, or_cpu, on_cluster, hosts = parts
        return cls(int(gpus), int(memory), model, or_cpu == "1", on_cluster == "1", int(hosts))

    @property
    def text(self) -> str:
        """The needs for a row; empty for none."""
        if self == Needs():
            return ""
        return "/".join(str(int(part) if isinstance(part, bool) else part) for part in self)

    def met_by(self, worker: Worker) -> bool:
        """Whether a run with these needs can be trained there."""
        if self.on_cluster and worker.cluster:
            return True
        if self.hosts > 1:
            return False
        if worker.gpus == 0:
            return self.or_cpu or self.gpus == 0
        enough = worker.gpus >= self.gpus and (worker.gpu_bytes or 0) >= self.memory * GIGABYTE
        return enough and self.model.lower() in worker.gpu.lower()
