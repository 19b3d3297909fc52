"""Who may see and do what: users, teams, roles, projects."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils.translation import gettext_lazy as _

from webapp.ids import UuidModel, name_validator


class User(AbstractUser, UuidModel):
    """A person who logs in."""


class Role(models.TextChoices):
    """What a member may do: a viewer reads, an editor also creates and runs, an owner also manages the team."""

    VIEWER = "viewer", _("viewer")
    EDITOR = "editor", _("editor")
    OWNER = "owner", _("owner")


class Team(UuidModel):
    """People who share projects."""

    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, through="Membership", related_name="teams")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """One person's role in one team."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(_("role"), max_length=10, choices=Role.choices, default=Role.VIEWER)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="membership_once")]

    def __str__(self) -> str:
        return f"{self.user} · {self.role}"


class Project(UuidModel):
    """Where a team keeps its runs, datasets, reward specs, environments and models."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="projects")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    slug = models.SlugField(max_length=80, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class LoginLink(models.Model):
    """A one-time link that logs its user in; only the hash of its token is stored."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    token_hash = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"login link of {self.user}"
