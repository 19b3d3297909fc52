"""Users, teams, roles and projects."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import Present, UuidModel, name_validator


class User(AbstractUser, UuidModel):
    """A person who logs in, or a machine account, which cannot log in (``webapp.people.teams.tokens``).

    The row of a deleted person stays, without anything that names them (``webapp.people.teams.services``).
    """

    is_machine = models.BooleanField(default=False, db_default=False, editable=False)
    deleted_at = models.DateTimeField(null=True, editable=False)

    class Meta(AbstractUser.Meta):
        constraints = [
            models.CheckConstraint(
                condition=models.Q(is_machine=False)
                | models.Q(
                    ("password__startswith", UNUSABLE_PASSWORD_PREFIX), email="", is_staff=False, is_superuser=False
                ),
                name="machine_without_a_way_in",
            )
        ]


class Role(models.TextChoices):
    """A member's rights: a viewer reads, an editor also creates and runs, an owner also manages the team."""

    VIEWER = "viewer", _("viewer")
    EDITOR = "editor", _("editor")
    OWNER = "owner", _("owner")


class Team(UuidModel):
    """People who share projects."""

    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, through="Membership", related_name="teams")
    created_at = models.DateTimeField(auto_now_add=True)
    removed_at = models.DateTimeField(null=True, editable=False)

    objects = Present()
    all_objects = models.Manager()

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """One person's role in one team."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(_("role"), max_length=10, choices=Role.choices, default=Role.VIEWER)
    by_group = models.BooleanField(
        default=False, db_default=False, editable=False, help_text="a group of single sign-on gave it, and takes it"
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="membership_once")]

    def __str__(self) -> str:
        return f"{self.user} · {self.role}"


DEMO = "Demo"
"""The name of the project that ``manage.py demo`` fills."""


class Project(UuidModel):
    """Where a team keeps its runs, datasets, reward specs, environments and models."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="projects")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    slug = models.SlugField(max_length=80, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    removed_at = models.DateTimeField(null=True, editable=False)
    device_limit = models.PositiveIntegerField(
        null=True, help_text="how many devices its runs may have at once; null: as many as there are"
    )

    storage_limit = models.PositiveIntegerField(
        null=True, help_text="how many GiB it may store before no run is launched; null: no limit"
    )

    objects = Present()
    all_objects = models.Manager()

    def __str__(self) -> str:
        return self.name


class Identity(models.Model):
    """Who a person is at a provider of single sign-on: names and mail addresses change there, this does not."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identities")
    issuer = models.CharField(max_length=200)
    subject = models.CharField(max_length=255)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="identity_once")]

    def __str__(self) -> str:
        return f"{self.subject} at {self.issuer}"


class LoginLink(models.Model):
    """A one-time link that logs its user in; only the hash of its token is stored."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    token_hash = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"login link of {self.user}"


class TokenEnd(models.TextChoices):
    """The cause of a token's end."""

    REVOKED = "revoked", _("revoked by you")
    OWNER = "owner", _("revoked by an owner of the team")
    ADMINISTRATOR = "administrator", _("revoked by an administrator")
    PASSWORD = "password", _("your password was set")
    DEACTIVATED = "deactivated", _("your account was deactivated")
    LEFT = "left", _("you left a team that it reached")
    REPLACED = "replaced", _("another one took its place")
    MACHINE = "machine", _("its machine account was ended")


class TokenScope(models.TextChoices):
    """The scope of a token with fewer rights than any role: only the operations that name its scope."""

    METRICS = "metrics", _("read runs and their metrics")
    INGEST = "ingest", _("send in datasets and runs")


class ApiToken(UuidModel):
    """A person's key for scripts; only its hash is stored. It can do what the person can, but no more than ``role``
    and ``scope`` let it, and where ``project`` is set only there. Its row says what ended it; an ended token is
    never valid again."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tokens")
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.EDITOR)
    scope = models.CharField(
        max_length=10, blank=True, default="", db_default="", choices=TokenScope.choices, help_text="empty: all of role"
    )
    token_hash = models.CharField(max_length=64, unique=True)
    hint = models.CharField(max_length=12, help_text="how it begins, so that people know it again")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True)
    used_at = models.DateTimeField(null=True)
    used_from = models.CharField(max_length=45, blank=True, default="", db_default="", help_text="IP address of that")
    revoked_at = models.DateTimeField(null=True)
    ended_by = models.CharField(max_length=20, blank=True, default="", db_default="", choices=TokenEnd.choices)
    ended_who = models.CharField(
        max_length=150, blank=True, default="", db_default="", help_text="name of whoever did what ended it"
    )

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "name"], condition=models.Q(revoked_at=None), name="api_token_name_once"
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def may(self) -> str:
        """Its rights, in words."""
        return str(TokenScope(self.scope).label if self.scope else Role(self.role).label)


class Machine(UuidModel):
    """A machine account: the user under whose name a program of a team calls the API.

    ``project`` and ``scope`` limit all its tokens. It outlives its maker and the projects that it acted in.
    """

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="machines")
    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="machine")
    name = models.CharField(_("name"), max_length=80)
    project = models.ForeignKey(
        Project, null=True, on_delete=models.SET_NULL, related_name="machines", help_text="None: all of the team's"
    )
    role = models.CharField(max_length=10, choices=Role.choices, help_text="as in its membership")
    scope = models.CharField(max_length=10, blank=True, choices=TokenScope.choices, help_text="empty: all of its role")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def may(self) -> str:
        """The rights of its tokens: a scope or a role."""
        return self.scope or self.role

    @property
    def may_words(self) -> str:
        """The same in words."""
        return str(TokenScope(self.scope).label if self.scope else Role(self.role).label)


class LoginThrottle(models.Model):
    """Failed logins of one account, one address or both, within a window; ``webapp.people.teams.logins`` has the
    rules."""

    key = models.CharField(max_length=64, primary_key=True)
    failures = models.PositiveIntegerField()
    last_at = models.DateTimeField()
    until = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.failures} failures until {self.until}"


class SiteSwitch(models.Model):
    """Something that an administrator switches on for the whole installation; without a row it is off."""

    name = models.CharField(max_length=40, primary_key=True)
    on = models.BooleanField(default=False)
    changed_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return self.name


class AuditAction(models.TextChoices):
    """The acts that leave a row."""

    TOKEN_MADE = "token_made", _("API token made")
    TOKEN_REVOKED = "token_revoked", _("API token revoked")
    CUSTOM_ON = "custom_on", _("custom rewards switched on")
    CUSTOM_OFF = "custom_off", _("custom rewards switched off")
    CODE_TESTED = "code_tested", _("reward code tested without an error")
    CODE_SAVED = "code_saved", _("reward code saved")
    CONFIRM_FAILED = "confirm_failed", _("wrong password at a confirmation")
    PASSWORD_SET = "password_set", _("password set")
    MACHINE_ADDED = "machine_added", _("machine account made")
    MACHINE_ENDED = "machine_ended", _("machine account ended")
    MEMBER_ADDED = "member_added", _("member added")
    MEMBER_ROLE = "member_role", _("member's role changed")
    MEMBER_REMOVED = "member_removed", _("member removed")
    LINK_MADE = "link_made", _("login link made")
    LINK_MAILED = "link_mailed", _("login link sent by mail")
    LINK_USED = "link_used", _("logged in by a link")
    IDENTITY_LINKED = "identity_linked", _("first login by single sign-on")
    MAIL_SET = "mail_set", _("mail address changed")
    DEACTIVATED = "deactivated", _("person deactivated")
    REACTIVATED = "reactivated", _("person reactivated")
    PERSON_DELETED = "person_deleted", _("person deleted")
    TEAM_DELETED = "team_deleted", _("team deleted")
    PROJECT_ADDED = "project_added", _("project created")
    PROJECT_DELETED = "project_deleted", _("project deleted")
    HUB_TOKEN_SET = "hub_token_set", _("project's Hugging Face token set")
    HUB_TOKEN_REMOVED = "hub_token_removed", _("project's Hugging Face token removed")
    DOCTOR_CHANGED = "doctor_changed", _("doctor's rules changed")
    RETENTION_CHANGED = "retention_changed", _("rules of retention changed")
    RETENTION_APPLIED = "retention_applied", _("removed by a rule of retention")
    RUN_ADDED = "run_added", _("run created")
    RUN_LAUNCHED = "run_launched", _("run launched")
    RUN_STOPPED = "run_stopped", _("run stopped")
    RUN_PAUSED = "run_paused", _("run paused")
    RUN_RESUMED = "run_resumed", _("run resumed")
    RUN_HELD = "run_held", _("waiting run put on hold")
    RUN_RELEASED = "run_released", _("waiting run released")
    RUN_PRIORITY = "run_priority", _("waiting run's priority changed")
    RUN_FIRST = "run_first", _("waiting run put first")
    ROLLOUT_ENDED = "rollout_ended", _("rollout in flight ended")
    ROLLOUT_FAILED = "rollout_failed", _("rollout in flight marked as failed")
    BRANCH_DELETED = "branch_deleted", _("branch of a rollout deleted")
    DEVICE_LIMIT = "device_limit", _("project's device limit changed")
    STORAGE_LIMIT = "storage_limit", _("project's storage limit changed")
    HOST_DRAINED = "host_drained", _("worker host set to drain")
    HOST_UNDRAINED = "host_undrained", _("worker host takes work again")
    RUN_IMPORTED = "run_imported", _("run imported")
    RUN_EXPORTED = "run_exported", _("run exported")
    RUN_LABELLED = "run_labelled", _("run's tags or notes changed")
    RUN_ARCHIVED = "run_archived", _("run archived")
    RUN_RESTORED = "run_restored", _("run taken out of the archive")
    RUN_DELETED = "run_deleted", _("run deleted")
    SWEEP_DELETED = "sweep_deleted", _("sweep deleted")
    PRESET_BEGUN = "preset_begun", _("preset prepared")
    PRESET_DROPPED = "preset_dropped", _("preset's preparation dropped")
    DATASET_ADDED = "dataset_added", _("dataset added")
    DATASET_CHANGED = "dataset_changed", _("dataset read again")
    DATASET_KEPT = "dataset_kept", _("dataset used without its bad rows")
    DATASET_ORDERED = "dataset_ordered", _("dataset ordered from an environment")
    DATASET_EXPORTED = "dataset_exported", _("dataset exported")
    DATASET_DELETED = "dataset_deleted", _("dataset deleted")
    REWARD_SAVED = "reward_saved", _("reward spec saved")
    REWARD_DELETED = "reward_deleted", _("reward spec deleted")
    CASE_SAVED = "case_saved", _("reward test case saved")
    CASE_DELETED = "case_deleted", _("reward test case deleted")
    VIEW_SAVED = "view_saved", _("view of rollouts saved")
    VIEW_DELETED = "view_deleted", _("view of rollouts deleted")
    SET_ADDED = "set_added", _("rollout set made")
    SET_DELETED = "set_deleted", _("rollout set deleted")
    ENVIRONMENT_ADDED = "environment_added", _("environment added")
    ENVIRONMENT_CHANGED = "environment_changed", _("environment changed")
    ENVIRONMENT_SCALED = "environment_scaled", _("environment scaled")
    ENVIRONMENT_RESTARTED = "environment_restart", _("environment restarted")
    ENVIRONMENT_DELETED = "environment_deleted", _("environment deleted")
    SUITE_SAVED = "suite_saved", _("evaluation suite saved")
    SUITE_DELETED = "suite_deleted", _("evaluation suite deleted")
    ENDPOINT_ADDED = "endpoint_added", _("endpoint added")
    ENDPOINT_CHANGED = "endpoint_changed", _("endpoint changed")
    ENDPOINT_KEY = "endpoint_key", _("endpoint's key replaced or removed")
    ENDPOINT_DELETED = "endpoint_deleted", _("endpoint deleted")
    MODEL_ADDED = "model_added", _("model registered")
    MODEL_MARKED = "model_marked", _("model marked")
    MODEL_UNMARKED = "model_unmarked", _("model's mark taken away")
    MODEL_DESCRIBED = "model_described", _("model's tags, notes or card changed")
    MODEL_PUSHED = "model_pushed", _("model's push to a hub asked for")
    MODEL_DOWNLOADED = "model_downloaded", _("model downloaded")
    MODEL_DELETED = "model_deleted", _("model deleted")
    CHECKPOINT_DELETED = "checkpoint_deleted", _("checkpoint deleted")
    RESCORING_BEGUN = "rescoring_begun", _("scoring of recorded rollouts begun")
    RESCORING_CANCELLED = "rescoring_cancelled", _("scoring of recorded rollouts cancelled")
    COMPARISON_SAVED = "comparison_saved", _("comparison saved")
    COMPARISON_RENAMED = "comparison_renamed", _("comparison renamed")
    COMPARISON_DELETED = "comparison_deleted", _("comparison deleted")
    COMMENT_DELETED = "comment_deleted", _("comment deleted")
    COMPARISON_SHARED = "comparison_shared", _("comparison shared by a link")
    SHARE_REVOKED = "share_revoked", _("shared link revoked")
    ROUND_MADE = "round_made", _("vote round made")
    ROUND_CLOSED = "round_closed", _("vote round closed")
    ROUND_REOPENED = "round_reopened", _("vote round reopened")
    ROUND_DELETED = "round_deleted", _("vote round deleted")
    CHANNEL_ADDED = "channel_added", _("notification channel added")
    CHANNEL_CHANGED = "channel_changed", _("notification channel changed")
    CHANNEL_RESUMED = "channel_resumed", _("notification channel resumed")
    CHANNEL_DELETED = "channel_deleted", _("notification channel deleted")
    CHAT_ADDED = "chat_added", _("chat started")
    CHAT_DELETED = "chat_deleted", _("chat deleted")


class AuditEntry(models.Model):
    """Who did what, when, from where. Append-only: the database refuses to change or delete a row.

    It names people, projects and objects by value, because it outlives them.
    """

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    user_id = models.UUIDField()
    username = models.CharField(max_length=150)
    action = models.CharField(max_length=20, choices=AuditAction.choices)
    subject = models.CharField(max_length=200, blank=True, help_text="what it was done to: a name, or a hash of code")
    object_kind = models.CharField(max_length=40, blank=True, help_text="its model, as app.model")
    object_id = models.CharField(max_length=36, blank=True)
    project_id = models.UUIDField(null=True)
    project_name = models.CharField(max_length=80, blank=True)
    address = models.CharField(max_length=45, blank=True, help_text="IP address of the request")
    agent = models.CharField(max_length=200, blank=True)

    class Meta:
        indexes = [models.Index(fields=["action", "project_id", "subject"], name="audit_subject")]
        ordering = ["-at", "-id"]

    def __str__(self) -> str:
        return f"{self.username}: {self.action}"
