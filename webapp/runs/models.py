"""Runs, their attempts and their history, and what a person keeps about them.

``Attempt`` and ``RunEvent`` are here, though the engine writes them: the lists and curves of this room read them.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from training.config import DEFAULT_KIND, Method, Reference, method_of
from webapp.common.ids import Present, UuidModel, name_validator
from webapp.common.pools import TRAIN
from webapp.people.teams.models import Project
from webapp.runs.states import AT_WORK, LEASED, Priority, RunState

CHECKING = "checking"
"""The phase of a draft whose launch check is at work."""


class Run(UuidModel):
    """One training job. Its lease is (attempt, lease_owner, lease_started_at, lease_beat_at).

    A worker claims a run by compare-and-set, which raises ``attempt`` by one; every later write names that attempt and
    is refused once another has begun. ``seq`` numbers everything that happened to the run, for the live view.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="runs")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    kind = models.CharField(max_length=10, default=DEFAULT_KIND)
    config = models.JSONField(help_text="training.config.JobConfig as the person wrote it, with references")
    resolved = models.JSONField(
        default=dict, help_text="the same with references replaced by what they meant at launch"
    )
    baselines = models.JSONField(
        default=list, help_text="envs.wire.Baseline of the environment at launch; later changes do not alter them"
    )
    environment_version = models.CharField(
        max_length=80, blank=True, help_text="what the environment's server said it was when a worker began"
    )
    state = models.CharField(max_length=12, choices=RunState.choices, default=RunState.DRAFT, db_index=True)
    pool = models.CharField(
        max_length=10,
        default=TRAIN,
        db_default=TRAIN,
        help_text="whose places it takes, as its launch found: a device's, or one of those that ask endpoints",
    )
    needs = models.CharField(
        max_length=80,
        blank=True,
        default="",
        db_default="",
        help_text="what it asks of its worker, as its launch found: common.workers.needs",
    )
    devices = models.PositiveIntegerField(
        default=1, db_default=1, help_text="how many devices it has while a worker has it"
    )
    sessions = models.TextField(
        blank=True,
        default="",
        db_default="",
        help_text="how many sessions of which environments it plays at once, as its launch found: records.sessions",
    )
    priority = models.CharField(
        max_length=6,
        choices=Priority.choices,
        default=Priority.NORMAL,
        db_default=Priority.NORMAL,
        help_text="its class in the queue",
    )
    first_at = models.DateTimeField(null=True, help_text="when an owner put it before its class; the newest goes first")
    on_hold_at = models.DateTimeField(null=True, help_text="since when an owner keeps it from starting")
    phase = models.CharField(max_length=12, blank=True)
    step = models.PositiveIntegerField(default=0)
    total_steps = models.PositiveIntegerField(default=0)
    last_reward = models.FloatField(null=True)
    success = models.FloatField(null=True, help_text="newest task success that its steps told")
    heldout_success = models.FloatField(null=True, help_text="newest task success on the held-out tasks")
    step_seconds = models.FloatField(null=True, help_text="smoothed duration of one step, for the time left")
    last_step_at = models.DateTimeField(null=True)
    last_event_at = models.DateTimeField(
        null=True, help_text="when the trainer was last heard, by the database's clock"
    )
    seq = models.BigIntegerField(default=0)
    after = models.ForeignKey(
        "self",
        null=True,
        on_delete=models.SET_NULL,
        related_name="followers",
        help_text="run whose final model this one starts from; waits in the queue for it",
    )
    parent = models.ForeignKey(
        "self",
        null=True,
        on_delete=models.SET_NULL,
        related_name="children",
        help_text="run that this one goes on from with changed options",
    )
    resume_checkpoint = models.ForeignKey(
        "registry.Checkpoint",
        null=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="the parent's checkpoint that the first attempt starts from",
    )
    resume_step = models.PositiveIntegerField(
        null=True, help_text="its step; stays when the checkpoint goes, so that a child never starts from nothing"
    )
    attempt = models.PositiveIntegerField(default=0)
    attempts_forgiven = models.PositiveIntegerField(
        default=0, help_text="attempts up to this number do not count as crashes: a person resumed the run after them"
    )
    lease_owner = models.CharField(max_length=120, blank=True)
    lease_worker = models.CharField(max_length=120, blank=True, db_default="", help_text="name of the owner's worker")
    lease_started_at = models.DateTimeField(null=True)
    lease_beat_at = models.DateTimeField(null=True)
    error = models.JSONField(null=True, help_text="training.errors.ErrorInfo of a failed or paused run")
    held = models.JSONField(
        null=True, help_text="{step, error, tries, next_try_at, until} while the step waits for something"
    )
    health = models.JSONField(
        default=dict,
        help_text="newest {resumed, sampler, skipped, save_seconds} that the trainer reported",
    )
    evaluation = models.JSONField(null=True, help_text="training.evaluation.figures.Report of an evaluation that ended")
    tags = ArrayField(
        models.CharField(max_length=30), default=list, help_text="webapp.runs.records.marks says which may be"
    )
    notes = models.TextField(blank=True, help_text="plain text of the team")
    archived_at = models.DateTimeField(null=True, help_text="since when the list hides it")
    imported = models.BooleanField(default=False)
    imported_from = models.CharField(max_length=60, blank=True, help_text="the trainer of a run that is not ours")
    idempotency_key = models.CharField(max_length=64, null=True)  # noqa: DJ001 - unique only where there is one
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    queued_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    removed_at = models.DateTimeField(null=True, editable=False)

    objects = Present()
    all_objects = models.Manager()

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="run_name_once"),
            models.UniqueConstraint(fields=["project", "idempotency_key"], name="run_idempotency_once"),
        ]
        # A row is 3 KB, and a list counts, sorts and offers filters over all runs of its project: from these alone.
        indexes = [
            models.Index(
                fields=["project", "-created_at", "id"],
                include=["archived_at", "created_by"],
                condition=models.Q(removed_at=None),
                name="run_listed",
            ),
            models.Index(
                fields=["project"],
                include=["tags"],
                condition=models.Q(removed_at=None) & ~models.Q(tags=[]),
                name="run_tagged",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def reference(self) -> str:
        """How a job's config names the final model of this run."""
        return str(Reference("run", self.name))

    @property
    def method(self) -> Method:
        """The method of the run's kind: whether it plays, trains, its tiles and curves."""
        return method_of(self.kind)

    @property
    def measures(self) -> bool:
        """Whether it says how good a contestant is: an evaluation, unless it continues from one recorded turn."""
        return self.method.evaluates and not (self.config.get("evaluate") or {}).get("continue_from")

    @property
    def url(self) -> str:
        """Address of its page."""
        return reverse("run-detail", args=[self.project.slug, self.pk])

    @property
    def archived(self) -> bool:
        """Whether the list hides it."""
        return self.archived_at is not None

    @property
    def state_shown(self) -> tuple[str, str]:
        """How a badge shows its state: a code for its looks, and the word. A draft in its launch check is no draft to a
        person."""
        if self.state == RunState.DRAFT and self.phase == CHECKING:
            return CHECKING, gettext("being checked")
        return self.state, str(RunState(self.state).label)

    @property
    def eta_seconds(self) -> float | None:
        """Seconds that its steps still take, at the pace of the last ones."""
        if self.state != RunState.RUNNING or self.step_seconds is None:
            return None
        return max(self.total_steps - self.step, 0) * self.step_seconds

    @property
    def beat_age_seconds(self) -> float | None:
        """Seconds since the worker that has it was last heard; of a run that ``records.selectors`` read."""
        return self._seconds("beat_age") if self.state in LEASED else None

    @property
    def progress_age_seconds(self) -> float | None:
        """Seconds since its trainer was last heard; of a run that ``records.selectors`` read."""
        return self._seconds("progress_age") if self.state in AT_WORK else None

    def _seconds(self, age: str) -> float | None:
        found: timedelta | None = getattr(self, age)
        return None if found is None else found.total_seconds()

    @property
    def waiting_for(self) -> str | None:
        """Name of the run that must end before this one starts."""
        return self._before.name if self._before else None

    @property
    def waiting_for_state(self) -> str | None:
        """Its state; one that is cancelled must be resumed."""
        return self._before.state if self._before else None

    @property
    def _before(self) -> Run | None:
        waits = self.after_id is not None and self.state == RunState.QUEUED
        return self.after if waits and self.after and self.after.state != RunState.SUCCEEDED else None


class RunStar(models.Model):
    """A person's star on a run."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="stars")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "run"], name="run_star_once")]

    def __str__(self) -> str:
        return f"{self.user} ★ {self.run}"


class RunColumns(models.Model):
    """Which columns a person chose for a project's list of runs; ``webapp.runs.records.columns`` knows them."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    columns = ArrayField(models.CharField(max_length=20))

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "project"], name="run_columns_once")]

    def __str__(self) -> str:
        return f"columns of {self.user} in {self.project}"


class Attempt(models.Model):
    """One try at a run by one worker. ``journal_offset`` bytes of its journal are in the database."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    owner = models.CharField(max_length=120)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    first_step = models.PositiveIntegerField(default=0)
    last_step = models.PositiveIntegerField(default=0)
    journal_offset = models.BigIntegerField(default=0)
    journal_line = models.BigIntegerField(default=0, help_text="lines before journal_offset")
    outcome = models.JSONField(null=True, help_text="the trainer's run_finished event, once projected")
    error = models.JSONField(null=True)
    clock_s = models.FloatField(default=0, db_default=0, help_text="clock.ahead_s of its host: of its journal's times")
    shipped_at = models.DateTimeField(null=True, help_text="when a host with another data folder published last")
    copied_at = models.DateTimeField(null=True, help_text="the shipped_at up to which the site's folder has its files")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="attempt_once")]
        indexes = [
            models.Index(fields=["ended_at"], name="attempt_ended"),  # those of the last day
            models.Index(
                fields=["shipped_at"],
                condition=models.Q(copied_at=None) | models.Q(copied_at__lt=models.F("shipped_at")),
                name="attempt_to_copy",
            ),
        ]
        ordering = ["number"]

    def __str__(self) -> str:
        return f"{self.run} · attempt {self.number}"


class RunEvent(models.Model):
    """Something that happened to a run: a state, a phase, an attempt, a log line, a warning. Append-only."""

    pk = models.CompositePrimaryKey("run", "seq")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events", db_index=False)  # begins pk
    seq = models.BigIntegerField()
    attempt = models.PositiveIntegerField(default=0)
    kind = models.CharField(max_length=20, help_text="state, phase, attempt, log, warning")
    payload = models.JSONField(default=dict)
    at = models.DateTimeField()

    class Meta:
        ordering = ["seq"]

    def __str__(self) -> str:
        return f"{self.kind} #{self.seq}"
