"""Suites, their versions, and the evaluations that played one."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import UuidModel, name_validator
from webapp.people.teams.models import Project
from webapp.runs.models import Run


class Suite(UuidModel):
    """A named set of evaluations by which a project measures its models."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="suites")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    note = models.CharField(_("note"), max_length=500, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="suite_name_once")]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class SuiteVersion(UuidModel):
    """One version of a suite. It never changes: scores of one version can be compared, those of two cannot.

    ``parts`` are ``{title, weight, config, environment}``: a config of kind `evaluate` without a contestant, and what
    the environment's server reported of itself when the version was made.
    """

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    parts = models.JSONField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["suite", "number"], name="suite_version_once")]
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"{self.suite} @{self.number}"


class SuiteEvaluation(UuidModel):
    """One contestant on all parts of a version. ``contestant`` is its reference: `model:…`, `run:…`,
    `endpoint:…`, `policy:…`.

    ``environments`` holds what the servers reported of themselves at the launch, one for each part.
    """

    version = models.ForeignKey(SuiteVersion, on_delete=models.CASCADE, related_name="evaluations")
    contestant = models.CharField(max_length=200)
    environments = models.JSONField(default=list)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["version", "-created_at"], name="suite_evaluation_newest")]
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.contestant


class SuiteRun(models.Model):
    """The run that plays one part of an evaluation."""

    evaluation = models.ForeignKey(SuiteEvaluation, on_delete=models.CASCADE, related_name="runs")
    part = models.PositiveSmallIntegerField()
    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="suite_run")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["evaluation", "part"], name="suite_part_once")]
        ordering = ["part"]

    def __str__(self) -> str:
        return f"{self.evaluation} · {self.part}"
