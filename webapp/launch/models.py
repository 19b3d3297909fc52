"""What a launch waits for: a preset's needs, the check before the queue, an estimate of memory.

Their rows are in the app ``runs``, where they were made: a new label would rename tables that hold data.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from training.config import SEED, Axis, Value
from webapp.common.ids import UuidModel, name_validator
from webapp.common.pools import SHORT
from webapp.common.work import Work
from webapp.people.teams.models import Project
from webapp.runs.models import Run


class PreparationState(models.TextChoices):
    """The state of the making of a preset's needs."""

    OPEN = "open", _("being prepared")
    DONE = "done", _("prepared")
    FAILED = "failed", _("failed")
    DROPPED = "dropped", _("dropped")


class Preparation(UuidModel, Work):
    """A preset that a person had made ready here, and launched if ``launch``. It needs no open page."""

    OPEN = (PreparationState.OPEN,)
    LIMIT_S = 240
    POOL = SHORT
    PRIORITY = 0  # a person waits to launch
    AGAIN_AFTER_S = 5

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="preparations")
    preset = models.CharField(max_length=60)
    size = models.CharField(max_length=10)
    launch = models.BooleanField(default=False)
    language = models.CharField(max_length=20, blank=True, help_text="what notes are written in")
    state = models.CharField(max_length=10, choices=PreparationState.choices, default=PreparationState.OPEN)
    note = models.TextField(blank=True, help_text="why it failed")
    run = models.ForeignKey(Run, null=True, on_delete=models.SET_NULL, related_name="+")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "runs"
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "preset", "size"], condition=models.Q(state="open"), name="preparation_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.preset} ({self.size}) of {self.project}"


class CheckState(models.TextChoices):
    """The state of the check before a launch."""

    OPEN = "open", _("being checked")
    PASSED = "passed", _("all checks passed")
    STOPPED = "stopped", _("decision needed")
    DROPPED = "dropped", _("dropped")


class LaunchCheck(UuidModel, Work):
    """The check of a run before it is queued, or (without a run) one that a person asked for on the form."""

    OPEN = (CheckState.OPEN,)
    LIMIT_S = 420
    POOL = SHORT
    PRIORITY = 0  # a person waits to launch

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="launch_checks")
    run = models.ForeignKey(Run, null=True, on_delete=models.CASCADE, related_name="launch_checks")
    digest = models.CharField(max_length=64, help_text="of what was checked, and in which language")
    anyway = models.BooleanField(default=False, help_text="only a hard problem stops the launch")
    language = models.CharField(max_length=20, blank=True, help_text="what findings are written in")
    state = models.CharField(max_length=10, choices=CheckState.choices, default=CheckState.OPEN)
    findings = models.JSONField(default=list, help_text="webapp.launch.preflight.Check, in order")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        app_label = "runs"
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["project", "digest", "-ended_at"], name="launch_check_fresh")]
        constraints = [
            models.UniqueConstraint(fields=["run"], condition=models.Q(state="open"), name="launch_check_once")
        ]

    def __str__(self) -> str:
        return f"check of {self.run or self.project}"


class EstimateState(models.TextChoices):
    """The state of an estimate of memory."""

    OPEN = "open", _("being worked out")
    DONE = "done", _("done")
    FAILED = "failed", _("failed")
    DROPPED = "dropped", _("dropped")


class MemoryEstimate(UuidModel, Work):
    """How much memory a job needs on a device: what a person's form asks for, kept by what it depends on."""

    OPEN = (EstimateState.OPEN,)
    LIMIT_S = 180
    POOL = SHORT
    AGAIN_AFTER_S = 5

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memory_estimates")
    digest = models.CharField(max_length=64, help_text="of what it depends on")
    config = models.JSONField(help_text="what of the job decides about memory, its model resolved")
    device = models.CharField(max_length=120, help_text="as training.memory.devices.device_named takes it")
    state = models.CharField(max_length=10, choices=EstimateState.choices, default=EstimateState.OPEN)
    answer = models.JSONField(default=dict, help_text="what python -m training memory --json says")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        app_label = "runs"
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["project", "digest", "-created_at"], name="memory_estimate_known")]

    def __str__(self) -> str:
        return f"memory on {self.device} in {self.project}"


class SweepMode(models.TextChoices):
    """Which jobs a sweep makes of its axes; ``training.config.axes`` makes them."""

    PRODUCT = "product", _("every combination")
    SINGLE = "single", _("one change at a time")


class Sweep(UuidModel):
    """Runs of one config with other values of a few options, launched at once. It never changes.

    What its runs vary is kept besides its config, so that it can be read when the config no longer fits.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="sweeps")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    mode = models.CharField(max_length=10, choices=SweepMode.choices, default=SweepMode.PRODUCT)
    config = models.JSONField(help_text="training.config.JobConfig that all runs begin with, as the person wrote it")
    axes = models.JSONField(help_text="[{option, values}], the values as the options have them")
    base = models.JSONField(help_text="{option: value} of the setting that all others are compared with, no seed")
    points = models.JSONField(help_text="[{option: value}] of each run, in the order of their numbers")
    idempotency_key = models.CharField(max_length=64, null=True)  # noqa: DJ001 - unique only where there is one
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "runs"
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="sweep_name_once"),
            models.UniqueConstraint(fields=["project", "idempotency_key"], name="sweep_idempotency_once"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def varied(self) -> list[Axis]:
        """Its axes."""
        return [Axis(each["option"], each["values"]) for each in self.axes]

    def setting(self, values: dict[str, Value]) -> dict[str, Value]:
        """The values of a run or of the base without its seed, in the order of the axes; the database has another."""
        return {axis.option: values[axis.option] for axis in self.varied if axis.option != SEED}


class SweepRun(models.Model):
    """A run of a sweep: ``number`` is its place among the sweep's jobs. It goes with the run."""

    sweep = models.ForeignKey(Sweep, on_delete=models.CASCADE, related_name="runs")
    number = models.PositiveSmallIntegerField()
    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="sweep_run")

    class Meta:
        app_label = "runs"
        constraints = [models.UniqueConstraint(fields=["sweep", "number"], name="sweep_run_once")]
        ordering = ["number"]

    def __str__(self) -> str:
        return f"{self.sweep} · {self.number}"
