"""Models that can be trained, and the checkpoints that training left."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from training.algorithms.checkpoints import ADAPTER, FINAL
from training.config import Reference
from webapp.common.ids import UuidModel, name_validator
from webapp.common.storage import inside, run_dir
from webapp.common.work import Work
from webapp.people.teams.models import Project


class ModelKind(models.TextChoices):
    """Where a model's weights come from."""

    STARTER = "starter", _("built from scratch")
    HUB = "hub", _("Hugging Face")
    FOLDER = "folder", _("local folder")
    RUN = "run", _("trained here")


class ModelMark(models.TextChoices):
    """The team's mark on a model. Of a project's models one at most is in production."""

    CANDIDATE = "candidate", _("candidate")
    PRODUCTION = "production", _("production")


class RegisteredModel(UuidModel):
    """A model that a job can start from. ``source`` is a Hugging Face id, or the name of a folder under MODELS_DIR."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="models")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    kind = models.CharField(max_length=10, choices=ModelKind.choices)
    source = models.CharField(max_length=500, blank=True)
    revision = models.CharField(max_length=64, blank=True)
    checkpoint = models.ForeignKey("Checkpoint", null=True, on_delete=models.CASCADE, related_name="models")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    mark = models.CharField(max_length=10, choices=ModelMark.choices, blank=True)
    marked_at = models.DateTimeField(null=True)
    tags = models.JSONField(default=list, help_text="short words of the team, in its order")
    notes = models.TextField(blank=True)
    card = models.JSONField(default=dict, help_text="the team's own sections of the model card: {section: text}")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="model_name_once"),
            models.UniqueConstraint(
                fields=["project"], condition=models.Q(mark="production"), name="model_production_once"
            ),
        ]
        indexes = [models.Index(fields=["project", "-created_at"], name="model_listed")]
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.name

    @property
    def reference(self) -> str:
        """How a job's config names this model."""
        return str(Reference("model", self.name))

    @property
    def run_id(self) -> UUID | None:
        """The run that it is a checkpoint of; ``None`` of any other model."""
        return self.checkpoint.run_id if self.checkpoint else None

    @property
    def step(self) -> int | None:
        """The step of that checkpoint."""
        return self.checkpoint.step if self.checkpoint else None

    @property
    def bytes(self) -> int | None:
        """The size of that checkpoint."""
        return self.checkpoint.bytes if self.checkpoint else None

    @property
    def folder(self) -> Path | None:
        """Where its files should lie on this server; ``None`` for a model of the hub, the starter, and a name that
        leads out of MODELS_DIR."""
        try:
            if self.kind == ModelKind.RUN:
                return self.checkpoint.folder if self.checkpoint else None
            return inside(Path(settings.MODELS_DIR), self.source) if self.kind == ModelKind.FOLDER else None
        except ValueError:
            return None

    @property
    def adapter(self) -> Path | None:
        """The LoRA adapter that was saved with a run's finished model. A checkpoint on the way is an adapter itself."""
        folder = self.folder
        if self.kind != ModelKind.RUN or folder is None or folder.name != FINAL:
            return None
        saved = folder.parent / ADAPTER
        return saved if saved.is_dir() else None


class PushState(models.TextChoices):
    """The state of the push of a model."""

    WAITING = "waiting", _("waiting")
    SENDING = "sending", _("being sent")
    DONE = "done", _("pushed")
    FAILED = "failed", _("failed")


class ModelPush(UuidModel, Work):
    """The files of a model on their way to a hub. ``readme`` is the model card as it was when the push was asked
    for."""

    OPEN = (PushState.WAITING, PushState.SENDING)
    LIMIT_S = 6 * 3600

    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="pushes")
    hub = models.CharField(max_length=200)
    repository = models.CharField(max_length=200, help_text="owner/name on the hub")
    private = models.BooleanField(default=True)
    readme = models.TextField(blank=True)
    state = models.CharField(max_length=10, choices=PushState.choices, default=PushState.WAITING)
    error = models.JSONField(null=True, help_text="training.errors.ErrorInfo")
    url = models.URLField(max_length=500, blank=True, help_text="of the commit")
    commit = models.CharField(max_length=64, blank=True)
    made = models.BooleanField(default=False, help_text="the repository is there, and this project made it")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["model"], condition=models.Q(state__in=("waiting", "sending")), name="model_push_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.model} → {self.repository}"


class CheckpointState(models.TextChoices):
    """Whether a checkpoint can still be started from."""

    WHOLE = "whole", _("intact")
    TORN = "torn", _("damaged")
    REMOVED = "removed", _("removed")


class Checkpoint(UuidModel):
    """A checkpoint of a run; ``path`` is relative to the run's folder, ``final`` marks the finished model."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE)  # type: ignore[attr-defined]
    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="checkpoints")  # type: ignore[attr-defined]
    attempt = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    path = models.CharField(max_length=200)
    bytes = models.BigIntegerField()
    final = models.BooleanField(default=False)
    held_out = models.FloatField(null=True, help_text="success on held-out tasks with these weights")
    state = models.CharField(max_length=10, choices=CheckpointState.choices, default=CheckpointState.WHOLE)
    torn_at = models.DateTimeField(null=True)
    removed_at = models.DateTimeField(null=True)
    seq = models.BigIntegerField()
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "attempt", "path"], name="checkpoint_once")]
        indexes = [
            models.Index(fields=["project", "-created_at"], condition=models.Q(state="whole"), name="checkpoint_listed")
        ]
        ordering = ["step"]

    def __str__(self) -> str:
        return f"{self.run} · step {self.step}"

    @property
    def reference(self) -> str:
        """How a chat names this checkpoint."""
        return str(Reference("checkpoint", str(self.pk)))

    @property
    def folder(self) -> Path:
        """Absolute folder, checked to lie inside the run's folder."""
        return inside(run_dir(self.run_id), self.path)
