"""Events, and their notifications to people and channels.

``Event`` is written with the change that it announces, in one transaction. A worker spreads it once: a ``Notification``
for each person, a ``Delivery`` for each mail and each channel. Both are unique, so that nothing is announced twice.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import UuidModel, name_validator
from webapp.common.pools import SHORT
from webapp.common.work import Work
from webapp.people.teams.models import Project


class Kind(models.TextChoices):
    """The kinds of events."""

    RUN_SUCCEEDED = "run_succeeded", _("Run succeeded")
    RUN_FAILED = "run_failed", _("Run failed")
    RUN_PAUSED = "run_paused", _("Run paused")
    RUN_ADVISORY = "run_advisory", _("Advisory on a run")
    EVALUATION_READY = "evaluation_ready", _("Evaluation ready")
    VOTE_ASKED = "vote_asked", _("Vote asked for")
    MODEL_PRODUCTION = "model_production", _("Model in production")


class EventState(models.TextChoices):
    """Whether people have been notified."""

    NEW = "new", _("new")
    SPREAD = "spread", _("told")
    FAILED = "failed", _("failed")


class Event(UuidModel, Work):
    """Something that happened in a project. It names its object by value, so that it can be shown after that is
    deleted."""

    OPEN = (EventState.NEW,)
    LIMIT_S = 60
    POOL = SHORT
    AGAIN_AFTER_S = 10

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="events")
    kind = models.CharField(max_length=20, choices=Kind.choices)
    key = models.CharField(max_length=120, unique=True, help_text="the same happening has the same key, and one event")
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="whose run it is; null where it concerns everybody",
    )
    people = models.JSONField(default=list, help_text="ids of the only people whom it concerns; empty: all")
    object_kind = models.CharField(max_length=40, blank=True, help_text="model of what it is about, as app.model")
    object_id = models.CharField(max_length=36, blank=True)
    subject = models.CharField(max_length=200, help_text="name of what it is about")
    facts = models.JSONField(
        default=dict, help_text="what the sentences are made of; webapp.people.notifications.words"
    )
    state = models.CharField(max_length=10, choices=EventState.choices, default=EventState.NEW)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}"


class Notification(models.Model):
    """An event in one person's list."""

    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="notifications")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notifications")
    read_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-event__created_at", "-id"]
        constraints = [models.UniqueConstraint(fields=["event", "user"], name="notification_once")]
        indexes = [models.Index(fields=["user", "read_at"], name="notification_unread")]

    def __str__(self) -> str:
        return f"{self.event} for {self.user}"


class Scope(models.TextChoices):
    """Which runs of a project a person is notified of."""

    MINE = "mine", _("my runs")
    ALL = "all", _("all runs")
    NONE = "none", _("nothing")


class Watch(models.Model):
    """A person's notifications in one project; without a row: their own runs, no mail."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="watches")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="watches")
    scope = models.CharField(max_length=10, choices=Scope.choices, default=Scope.MINE)
    mail = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "project"], name="watch_once")]

    def __str__(self) -> str:
        return f"{self.user}: {self.scope} of {self.project}"


class Visit(models.Model):
    """When a person last saw a project's overview, and when before that visit: what happened since is their news."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="visits")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="visits")
    last_at = models.DateTimeField()
    before_at = models.DateTimeField(null=True, help_text="the end of the visit before; null at the first one")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "project"], name="visit_once")]

    def __str__(self) -> str:
        return f"{self.user} in {self.project}: {self.last_at}"


class ReaderState(models.TextChoices):
    """Whether a test mail was asked for."""

    IDLE = "idle", _("idle")
    TESTING = "testing", _("being sent")


class Reader(Work):
    """What a person is notified of in all projects, and the language of their mail; without a row: all events.

    Its work is the test mail that the person asked for; ``told`` is the result.
    """

    OPEN = (ReaderState.TESTING,)
    LIMIT_S = 60
    POOL = SHORT
    SINCE = "heard_at"
    AGAIN_AFTER_S = 10

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True)
    muted = models.JSONField(default=list, help_text="kinds of events that are not told")
    language = models.CharField(max_length=10, choices=settings.LANGUAGES, default=settings.LANGUAGE_CODE)
    state = models.CharField(max_length=10, choices=ReaderState.choices, default=ReaderState.IDLE)
    told = models.JSONField(null=True, help_text="what came of the test mail: training.words.Sentence")
    worked = models.BooleanField(null=True, help_text="whether the mail server took the test mail")
    tested_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.user} reads {self.language}"


class ChannelKind(models.TextChoices):
    """The service whose format a webhook has."""

    SLACK = "slack", "Slack"
    FEISHU = "feishu", _("Feishu")
    DINGTALK = "dingtalk", _("DingTalk")
    DISCORD = "discord", "Discord"
    JSON = "json", "JSON"


class Channel(UuidModel):
    """Where a project's events are posted. Its address and secret are files
    (``webapp.people.notifications.formats``)."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="channels")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    kind = models.CharField(max_length=10, choices=ChannelKind.choices)
    host = models.CharField(max_length=260, help_text="of its address, whose rest is a secret")
    signed = models.BooleanField(default=False, help_text="whether it has a secret to sign with")
    events = models.JSONField(default=list, help_text="kinds of events that are posted")
    language = models.CharField(max_length=10, choices=settings.LANGUAGES, default=settings.LANGUAGE_CODE)
    failures = models.PositiveSmallIntegerField(default=0, help_text="posts in a row that failed")
    paused_at = models.DateTimeField(null=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="channel_name_once")]

    def __str__(self) -> str:
        return self.name


class DeliveryState(models.TextChoices):
    """The state of a mail or a post."""

    WAITING = "waiting", _("waiting")
    SENT = "sent", _("delivered")
    FAILED = "failed", _("failed")
    HELD = "held", _("held")
    DROPPED = "dropped", _("dropped")


class Delivery(UuidModel, Work):
    """One event on its way to one channel, or by mail to one person. Its id is the key that receivers see."""

    OPEN = (DeliveryState.WAITING,)
    LIMIT_S = 60
    POOL = SHORT
    AGAIN_AFTER_S = 10

    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="deliveries")
    channel = models.ForeignKey(Channel, null=True, on_delete=models.CASCADE, related_name="deliveries")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="deliveries")
    state = models.CharField(max_length=10, choices=DeliveryState.choices, default=DeliveryState.WAITING)
    attempts = models.PositiveSmallIntegerField(default=0)
    told = models.JSONField(null=True, help_text="what came of the last attempt: training.words.Sentence")
    tried_at = models.DateTimeField(null=True)
    again_at = models.DateTimeField(null=True, help_text="when it is tried again")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["event", "channel"], name="delivery_once_channel"),
            models.UniqueConstraint(fields=["event", "user"], name="delivery_once_user"),
            models.CheckConstraint(
                condition=models.Q(channel=None) ^ models.Q(user=None), name="delivery_to_channel_or_user"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.event} to {self.channel or self.user}"
