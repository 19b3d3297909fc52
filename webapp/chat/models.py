"""Chats with models: a person's turns, and the answers of each contestant.

Nothing is thrown away: an edited turn is replaced together with all that followed it, and an answer that
is drawn again is kept next to the earlier one.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import UuidModel
from webapp.common.pools import TRAIN
from webapp.common.work import Work
from webapp.environments.models import Environment
from webapp.people.teams.models import Project


class Chat(UuidModel):
    """A conversation with one or two contestants. ``seq`` numbers every change of it, for the open pages."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="chats")
    title = models.CharField(max_length=80, blank=True, help_text="the beginning of the first message")
    contestants = models.JSONField(help_text="webapp.chat.conversation.Contestant, one or two")
    environment = models.ForeignKey(Environment, null=True, on_delete=models.SET_NULL, related_name="+")
    environment_name = models.CharField(max_length=80, blank=True, help_text="stays when the environment goes")
    parameters = models.JSONField(default=dict, help_text="webapp.chat.conversation.Parameters")
    seq = models.BigIntegerField(default=0)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    used_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-used_at"]
        indexes = [models.Index(fields=["project", "-used_at"], name="chat_used")]

    def __str__(self) -> str:
        return self.title or str(_("new chat"))

    @property
    def titles(self) -> list[str]:
        """The names of its contestants."""
        return [one["title"] for one in self.contestants]

    @property
    def environment_gone(self) -> bool:
        """Whether the environment that it was played on was deleted."""
        return bool(self.environment_name) and self.environment_id is None


class Turn(UuidModel):
    """A turn of a person, in its place of the conversation. ``replaced_at``: it or an earlier one was edited."""

    chat = models.ForeignKey(Chat, on_delete=models.CASCADE, related_name="turns")
    number = models.PositiveIntegerField()
    text = models.TextField(blank=True, help_text="empty where the environment begins")
    said_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    replaced_at = models.DateTimeField(null=True)
    seq = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["number", "created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["chat", "number"], condition=models.Q(replaced_at=None), name="chat_turn_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.chat} #{self.number}"

    @property
    def replaced(self) -> bool:
        """Whether it or an earlier one was edited."""
        return self.replaced_at is not None


class AnswerState(models.TextChoices):
    """The state of an answer."""

    WAITING = "waiting", _("waiting")
    ANSWERING = "answering", _("being written")
    DONE = "done", _("done")
    STOPPED = "stopped", _("stopped")
    CUT = "cut", _("cut off")
    FAILED = "failed", _("failed")


class Answer(UuidModel, Work):
    """One contestant's answer to one turn. ``messages`` are complete; ``partial`` is the text being written.

    It is work for a holder with a device, or a place for endpoints (``webapp.chat.holder``), and no kind of
    ``work.KINDS``: its messages go to other queues, and an answer that was begun is never begun again by itself.
    """

    OPEN = (AnswerState.WAITING, AnswerState.ANSWERING)
    SILENT_AFTER_S = 12
    POOL = TRAIN  # of most; each row says

    pool = models.CharField(max_length=10, default=TRAIN, db_default=TRAIN, help_text="whose places it takes")
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="answers")
    contestant = models.PositiveSmallIntegerField()
    number = models.PositiveIntegerField(default=0, help_text="how often it was drawn before")
    state = models.CharField(max_length=10, choices=AnswerState.choices, default=AnswerState.WAITING)
    stop = models.BooleanField(default=False, help_text="a person wants no more of it")
    parameters = models.JSONField(default=dict, help_text="those it is drawn with")
    messages = models.JSONField(default=list, help_text="envs.wire.Message")
    partial = models.TextField(blank=True)
    ending = models.JSONField(null=True, help_text="training.chat.wire.Ended without its id")
    error = models.JSONField(null=True, help_text="training.errors.ErrorInfo")
    seq = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["contestant", "number"]
        indexes = [
            models.Index(
                fields=["created_at"], condition=models.Q(state__in=["waiting", "answering"]), name="chat_answer_open"
            )
        ]
        constraints = [
            models.UniqueConstraint(fields=["turn", "contestant", "number"], name="chat_answer_once"),
        ]

    def __str__(self) -> str:
        return f"answer to {self.turn}"

    @property
    def phase(self) -> str:
        """Its worker's phase before the first token; empty where none was reported."""
        return str(self.progress.get("phase", ""))


class Holder(models.Model):
    """A worker that answers chats now, and so has one of its places. Its row is renewed while it lives."""

    owner = models.CharField(max_length=120, primary_key=True)
    pool = models.CharField(max_length=10, default=TRAIN, db_default=TRAIN)
    worker = models.CharField(max_length=120, blank=True)
    loaded = models.JSONField(default=list, help_text="names of the models in memory")
    heard_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.owner
