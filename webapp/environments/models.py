"""Registered environments, the servers that play them now, and their recent load."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.validators import MaxValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from training.config import Reference
from webapp.common.ids import UuidModel, name_validator
from webapp.common.work import Work
from webapp.datasets.models import Dataset
from webapp.environments.builtin import BuiltIn, builtin_of_image, builtins
from webapp.people.teams.models import Project

MAX_REPLICAS = 16


class Kind(models.TextChoices):
    """How the servers of an environment are started."""

    URL = "url", _("a server at an address")
    PROCESS = "process", _("a built-in server")
    DOCKER = "docker", _("a container image")


class ReplicaState(models.TextChoices):
    """The state of one server when the keeper last checked it."""

    STARTING = "starting", _("starting")
    HEALTHY = "healthy", _("healthy")
    UNHEALTHY = "unhealthy", _("unhealthy")
    STOPPING = "stopping", _("stopping")
    FAILED = "failed", _("failed")


class Environment(UuidModel):
    """A registered environment: one server at an address, or up to ``MAX_REPLICAS`` that the keeper starts.

    People write what they want (``wanted``, a replica's ``wish``); only the keeper writes what is. ``healthy``,
    ``health`` and ``checked_at`` sum up its replicas, and stay as they were while none runs.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="environments")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.URL)
    url = models.URLField(_("URL"), max_length=500, blank=True, help_text="of kind url")
    program = models.CharField(max_length=40, blank=True, help_text="folder below envs/, of kind process")
    image = models.CharField(max_length=200, blank=True, help_text="of kind docker")
    protocol = models.CharField(max_length=16, default="openenv", help_text="training.config.Protocol")
    options = models.JSONField(default=dict, help_text="what the protocol needs to know beside the address")
    arguments = models.JSONField(
        default=dict, help_text="chosen options of a built-in server (webapp.environments.builtin)"
    )
    slots = models.PositiveIntegerField(default=128, help_text="sessions of each replica that we start")
    cpus = models.FloatField(default=1.0, help_text="limits of each replica that we start")
    memory_mb = models.PositiveIntegerField(default=1024)
    pids = models.PositiveIntegerField(default=128)
    wanted = models.PositiveSmallIntegerField(default=1, validators=[MaxValueValidator(MAX_REPLICAS)])
    server_name = models.CharField(max_length=80, blank=True, help_text="the identity that every replica must report")
    healthy = models.BooleanField(null=True, help_text="whether a replica answers; None until the first check")
    health = models.JSONField(default=dict, help_text="last checks.Answer of a replica, or {error: ErrorInfo}")
    checked_at = models.DateTimeField(null=True)
    validation = models.JSONField(null=True, help_text="last envs.wire.Validation with its time as ``at``")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="environment_name_once")]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def reference(self) -> str:
        """How a job's config names this environment."""
        return str(Reference("environment", self.name))

    @property
    def launched(self) -> bool:
        """Whether its servers are started here."""
        return self.kind != Kind.URL

    @property
    def built_in(self) -> BuiltIn | None:
        """The server of ours that is started: by name, or in an image of ours that speaks our protocol."""
        if self.kind == Kind.PROCESS:
            return builtins().get(self.program)
        return builtin_of_image(self.image) if self.kind == Kind.DOCKER and self.protocol == "openenv" else None

    def addresses(self) -> list[str]:
        """Where it can be played now: the replicas that answer, else those that may answer soon."""
        replicas = [item for item in self.replicas.all() if item.url]
        healthy = [item.url for item in replicas if item.state == ReplicaState.HEALTHY]
        coming = [item.url for item in replicas if item.state in (ReplicaState.STARTING, ReplicaState.UNHEALTHY)]
        return healthy or coming or ([self.url] if self.url else [])

    def job_values(self) -> dict[str, Any]:
        """The options of ``EnvironmentConfig`` that this registration fills in."""
        addresses = self.addresses()
        return {
            "name": self.server_name or self.name,
            "url": addresses[0] if addresses else "",
            "protocol": self.protocol,
            "options": self.options,
            "replicas": addresses[1:],
            "deterministic": self.health.get("deterministic") is True,
        }

    @property
    def version(self) -> str:
        """The version that its server last gave; empty where it gave none."""
        return str(self.health.get("version") or "")[:80]

    def baselines(self) -> list[dict[str, Any]]:
        """The rewards of simple policies here, as the server last reported them (``envs.wire.Baseline``)."""
        return list(self.health.get("baselines") or [])


class Replica(models.Model):
    """One server of an environment. An environment at an address has exactly one, which is not started here."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="replicas")
    number = models.PositiveSmallIntegerField()
    url = models.URLField(max_length=500, blank=True, help_text="kept over restarts")
    handle = models.JSONField(default=dict, help_text="what its launcher knows it by; empty while nothing runs")
    state = models.CharField(max_length=10, choices=ReplicaState.choices, default=ReplicaState.STARTING)
    wish = models.CharField(max_length=8, blank=True, help_text="`restart` until the keeper has done it")
    health = models.JSONField(default=dict, help_text="last checks.Answer")
    error = models.JSONField(null=True, help_text="training.errors.ErrorInfo; its ``log`` holds last lines")
    started_at = models.DateTimeField(null=True)
    checked_at = models.DateTimeField(null=True)
    restarts = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["environment", "number"], name="replica_number_once")]
        ordering = ["number"]

    def __str__(self) -> str:
        return f"{self.environment} #{self.number}"


class EnvironmentSample(models.Model):
    """The load of an environment at one moment, summed over its replicas; latencies are the slowest replica's."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="samples")
    at = models.DateTimeField()
    sessions = models.PositiveIntegerField(null=True)
    slots = models.PositiveIntegerField(null=True)
    steps_per_s = models.FloatField(null=True)
    p50_ms = models.FloatField(null=True)
    p95_ms = models.FloatField(null=True)
    errors = models.JSONField(default=dict, help_text="new since the sample before, by code")

    class Meta:
        indexes = [models.Index(fields=["environment", "at"], name="environment_sample_at")]
        ordering = ["at"]

    def __str__(self) -> str:
        return f"{self.environment} at {self.at}"


class OrderState(models.TextChoices):
    """The state of a dataset that an environment's program is to write."""

    WAITING = "waiting", _("waiting")
    WRITING = "writing", _("being written")
    DONE = "done", _("written")
    FAILED = "failed", _("failed")


class DatasetOrder(UuidModel, Work):
    """A dataset that a person asked of a built-in environment. Its rows are checked like those of an upload."""

    OPEN = (OrderState.WAITING, OrderState.WRITING)

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="orders")
    name = models.CharField(max_length=80, validators=[name_validator])
    command = models.CharField(max_length=40, help_text="of the program's x-datasets")
    arguments = models.JSONField(default=dict, help_text="chosen options of the command")
    state = models.CharField(max_length=8, choices=OrderState.choices, default=OrderState.WAITING)
    error = models.JSONField(null=True, help_text="training.errors.ErrorInfo")
    dataset = models.ForeignKey(Dataset, null=True, on_delete=models.SET_NULL, related_name="+")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} of {self.environment}"
