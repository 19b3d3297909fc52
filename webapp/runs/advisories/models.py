"""What the doctor found in a run, and how far it has looked."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import UuidModel
from webapp.people.teams.models import Project
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint


class Reaction(models.TextChoices):
    """The reaction to an advisory, besides showing it."""

    NOTIFY = "notify", _("notify only")
    KEEP = "keep", _("keep the checkpoint before it")
    PAUSE = "pause", _("pause the run")


class DoctorRules(models.Model):
    """A project's settings that differ from the defaults: thresholds by option of ``DoctorOptions``, reactions by an
    advisory's code."""

    project = models.OneToOneField(Project, on_delete=models.CASCADE, primary_key=True, related_name="doctor_rules")
    thresholds = models.JSONField(default=dict)
    reactions = models.JSONField(default=dict)
    resumes = models.BooleanField(default=True, help_text="whether runs go on by themselves (webapp.engine.recovery)")
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    changed_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.project}: rules of the doctor"


class Examination(models.Model):
    """How far the doctor has looked at a run, and what it remembers of it (``training.doctor.doctor.Doctor.as_json``).

    The worker that looks holds the row's lock, so that each step is seen once. ``attempt`` is the one whose steps were
    seen last: a later one trains some of them again.
    """

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="examination")
    attempt = models.PositiveIntegerField(default=0)
    step = models.PositiveIntegerField(default=0)
    memory = models.JSONField(null=True)
    diagnosis = models.JSONField(null=True, help_text="training.doctor.diagnosis.Diagnosis after that step")
    looked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.run_id}: step {self.step}"


class Advisory(UuidModel):
    """One advisory of a run. ``first`` and ``last`` are the steps at which its rule spoke first and last.

    ``evidence`` is a ``training.doctor.doctor.Evidence``; its rollouts are {id, step, group, index}. ``kept`` and
    ``paused`` say what a rule of the project did when it opened.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="advisories")
    code = models.CharField(_("code"), max_length=40)
    first = models.PositiveIntegerField()
    last = models.PositiveIntegerField()
    open = models.BooleanField(default=True)
    evidence = models.JSONField()
    kept = models.ForeignKey(Checkpoint, null=True, on_delete=models.SET_NULL, related_name="kept_for")
    paused = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-open", "-last", "code"]
        constraints = [models.UniqueConstraint(fields=["run", "code", "first"], name="advisory_once")]
        indexes = [models.Index(fields=["run"], condition=models.Q(open=True), name="advisory_open")]

    def __str__(self) -> str:
        return f"{self.code} since step {self.first}"
