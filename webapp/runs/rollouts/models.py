"""Transcripts: rollouts, their turns, their groups."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any
from uuid import UUID, uuid5

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.translation import gettext_lazy as _

from webapp.common.words import Outcome
from webapp.runs.models import Run
from webapp.runs.numbering import seq_index

# A column of whole numbers that every turn brings by the hundred.


class NumbersField(ArrayField):
    """``integer[]`` whose values go to PostgreSQL as one text: Django and the driver would handle each number in turn,
    which was a third of what it cost to record a turn."""

    def __init__(self, **options: Any) -> None:
        options.pop("base_field", None)
        super().__init__(models.IntegerField(), **options)

    def get_db_prep_value(
        self, value: Iterable[int] | None, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> str | None:
        """The array as PostgreSQL writes it; the placeholder casts it."""
        return None if value is None else f"{{{','.join(map(str, value))}}}"

    def deconstruct(self) -> Any:
        """As the field of Django that it is in the database."""
        name, _path, arguments, options = super().deconstruct()
        return name, "django.contrib.postgres.fields.ArrayField", arguments, options


class RolloutStatus(models.TextChoices):
    """The state of a rollout; an excluded one failed outside the policy and has no reward."""

    RUNNING = "running", _("in flight")
    COMPLETED = "completed", _("ended")
    TRUNCATED = "truncated", _("truncated")
    EXCLUDED = "excluded", _("excluded")


class Rollout(models.Model):
    """One trajectory. ``seq`` is that of its last change."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="rollouts", db_index=False)  # rollout_changed
    attempt = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    group = models.PositiveIntegerField()
    index = models.PositiveIntegerField()
    row = models.PositiveIntegerField(null=True)
    part = models.CharField(
        max_length=40, blank=True, default="", db_default="", help_text="of a mix: the part whose task it is"
    )
    task = models.TextField(blank=True)
    expected = models.TextField(
        blank=True, default="", db_default="", help_text="the answer that was wanted, where an imported run tells it"
    )
    held_out = models.BooleanField(default=False, help_text="played to evaluate a run that trains; not learned from")
    policy = models.CharField(max_length=120, blank=True, help_text="who played, where it was not the run's model")
    status = models.CharField(max_length=10, choices=RolloutStatus.choices, default=RolloutStatus.RUNNING)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.IN_FLIGHT)
    judged_by = models.CharField(
        max_length=64, blank=True, help_text="the reward component that decided it, where the environment did not"
    )
    reward = models.FloatField(null=True)
    parts = models.JSONField(default=dict)
    env_reward = models.FloatField(null=True)
    env_parts = models.JSONField(default=dict)
    turn_rewards = models.JSONField(
        null=True, help_text="the environment's reward so far at the reset and after each turn; null where it said none"
    )
    turn_advantages = models.JSONField(null=True, help_text="of each turn, where turns have credit of their own")
    parse_errors = models.PositiveIntegerField(default=0)
    advantage = models.FloatField(null=True)
    error = models.JSONField(null=True)
    turns = models.PositiveIntegerField(default=0)
    tokens = models.PositiveIntegerField(default=0)
    calls = models.PositiveIntegerField(null=True, help_text="tool calls; empty where nobody counted them")
    failed_calls = models.PositiveIntegerField(null=True, help_text="tool calls that were answered by an error")
    cost = models.FloatField(null=True, help_text="money, where an endpoint with prices played")
    policy_step = models.PositiveIntegerField(null=True, help_text="steps that its oldest weights were trained for")
    characters = models.PositiveIntegerField(default=0, help_text="of what the policy wrote")
    tools = ArrayField(models.CharField(max_length=120), default=list, help_text="that it called, each once")
    surprise = models.FloatField(null=True, help_text="bits: how rare it is in its group; empty outside scored groups")
    seconds = models.FloatField(default=0)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    seq = models.BigIntegerField()

    class Meta:
        indexes = [
            # Without ``index``: PostgreSQL keeps a key once for all rollouts of a group.
            models.Index(fields=["run", "step", "group"], name="rollout_of_group"),
            seq_index("rollout_changed"),
            # The task map reads nothing else of a rollout: a run of a million is answered from the index alone.
            models.Index(
                fields=["run", "row", "step"],
                include=["group", "attempt", "outcome"],
                condition=models.Q(held_out=False, row__isnull=False),
                name="rollout_task",
            ),
        ]

    def __str__(self) -> str:
        return f"step {self.step} · group {self.group} · {self.index}"

    @property
    def truncated(self) -> bool:
        """Whether it was cut off before its end."""
        return self.status == RolloutStatus.TRUNCATED


class Turn(models.Model):
    """Messages that one party added to a rollout; number 0 is the prompt."""

    pk = models.CompositePrimaryKey("rollout", "number")
    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="turn_set", db_index=False)  # begins pk
    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_index=False)  # turn_changed
    number = models.PositiveIntegerField()
    messages = models.JSONField(help_text="list of envs.wire.Message")
    tokens = models.PositiveIntegerField(default=0)
    seconds = models.FloatField(default=0)
    policy_step = models.PositiveIntegerField(null=True, help_text="steps that the weights which sampled it had")
    parse_error = models.TextField(
        blank=True, default="", db_default="", help_text="why its text could not be read as a call"
    )
    wrote = models.TextField(
        blank=True, default="", db_default="", help_text="its text as written, where the messages lack some of it"
    )
    words = NumbersField(null=True, help_text="webapp.runs.rollouts.words; empty until it is indexed")
    seq = models.BigIntegerField()

    class Meta:
        indexes = [
            seq_index("turn_changed"),
            GinIndex(fields=["words"], condition=models.Q(words__isnull=False), name="turn_words"),
            models.Index(fields=["run"], condition=models.Q(words__isnull=True), name="turn_not_indexed"),
        ]
        ordering = ["number"]

    def __str__(self) -> str:
        return f"turn {self.number}"

    @property
    def written(self) -> list[dict[str, Any]]:
        """Its messages as they were written: a turn with a call that could not be read is one text, without calls."""
        return [{"role": "assistant", "content": self.wrote}] if self.wrote else list(self.messages)


class RolloutGroup(models.Model):
    """The baseline that one prompt's rollouts were compared with."""

    pk = models.CompositePrimaryKey("run", "attempt", "step", "group")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_index=False)  # begins pk
    attempt = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    group = models.PositiveIntegerField()
    reward_mean = models.FloatField(null=True)
    reward_std = models.FloatField(null=True)
    zero_variance = models.BooleanField()
    seq = models.BigIntegerField()

    class Meta:
        indexes = [seq_index("rollout_group_changed")]

    def __str__(self) -> str:
        return f"step {self.step} · group {self.group}"


# Ids of rollouts.


def rollout_id(run_id: UUID, attempt: int, name: str) -> UUID:
    """Id of a rollout: derived, so that a second import or a repeated journal name never meets a stranger's row."""
    return uuid5(run_id, f"{attempt}/{name}")
