"""Writing people, teams and projects, a project's Hugging Face token, and the installation's switches."""

from __future__ import annotations

import logging
import re
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import IntegrityError, transaction
from django.db.models import CASCADE, Model, Q
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.text import slugify
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.children import MODEL_CACHE, MODEL_TOKEN
from training.config import JobConfig
from webapp.common.secrets.models import Kind
from webapp.common.secrets.vault import secret_of, secret_set, secret_since, secrets_forget
from webapp.common.storage import project_dir
from webapp.people.teams.audit import audit
from webapp.people.teams.logins import login_link_create, login_links_end
from webapp.people.teams.models import (
    ApiToken,
    AuditAction,
    LoginLink,
    Membership,
    Project,
    Role,
    SiteSwitch,
    Team,
    TokenEnd,
    User,
)
from webapp.people.teams.tokens import tokens_end, user_hold

logger = logging.getLogger(__name__)


class NewMember(NamedTuple):
    """A new membership; ``token`` is that of a one-time login link when the account is new as well."""

    membership: Membership
    token: str | None


def member_add(*, team: Team, username: str, role: str, by: User) -> NewMember:
    """Add a person; a name without an account gets one, and a one-time login link."""
    with transaction.atomic():
        user = User.objects.filter(username__iexact=username).first()
        fresh = user is None
        if user is None:
            try:
                with transaction.atomic():
                    user = User.objects.create_user(username)  # without a usable password
            except IntegrityError as exc:
                raise ValidationError({"username": _("That name has just been taken; try again.")}) from exc
        if user.is_machine:
            raise ValidationError({"username": _("%(name)s is a machine account.") % {"name": user.username}})
        if user.deleted_at is not None:
            raise ValidationError(
                {"username": _("%(name)s was deleted; choose another name.") % {"name": user.username}}
            )
        membership, made = Membership.objects.get_or_create(team=team, user=user, defaults={"role": role})
        if not made:
            raise ValidationError({"username": _("%(name)s is already in this team.") % {"name": user.username}})
        token = login_link_create(user=user) if fresh else None
        audit(AuditAction.MEMBER_ADDED, user, by=by, subject=f"{user.username} · {team.name} · {role}")
    logger.info(
        "member added",
        extra={"action": "member_add", "team_id": str(team.pk), "user_id": str(user.pk), "by": str(by.pk)},
    )
    return NewMember(membership, token)


def _keep_an_owner(team: Team, leaving: Membership) -> None:
    """Refuse to leave a team without an owner. Locks the team's owners, so two at once cannot both leave."""
    owners = list(Membership.objects.select_for_update().filter(team=team, role=Role.OWNER).order_by("pk"))
    if [owner.pk for owner in owners] == [leaving.pk]:
        raise ValidationError(_("A team needs an owner: make another person an owner first."))


@transaction.atomic
def member_set_role(*, membership: Membership, role: str, by: User) -> Membership:
    """Change a member's role; the last owner stays one."""
    if role != Role.OWNER:
        _keep_an_owner(membership.team, membership)
    membership.role = role
    membership.save(update_fields=["role"])
    audit(
        AuditAction.MEMBER_ROLE, membership.user, by=by, subject=f"{membership.user} · {membership.team.name} · {role}"
    )
    logger.info(
        "role changed", extra={"action": "member_set_role", "member": membership.pk, "role": role, "by": str(by.pk)}
    )
    return membership


@transaction.atomic
def member_remove(*, membership: Membership, by: User) -> None:
    """Take a person out of the team; the last owner stays. Tokens that reached its projects end: one that
    was only paused would become valid again if the person came back."""
    _keep_an_owner(membership.team, membership)
    user_hold(membership.user)
    logger.info("member removed", extra={"action": "member_remove", "member": membership.pk, "by": str(by.pk)})
    audit(AuditAction.MEMBER_REMOVED, membership.user, by=by, subject=f"{membership.user} · {membership.team.name}")
    membership.delete()
    tokens_end(membership.user, TokenEnd.LEFT, by=by, team=membership.team)


def manages(*, by: User, user: User) -> bool:
    """Whether ``by`` may make login links for a person, and let them in or not.

    A link logs in as that person, so it must open nothing that ``by`` could not open: an administrator manages all but
    administrators; an owner only people who are not administrators and whose teams the owner owns.
    """
    if user.pk == by.pk or user.is_machine or user.is_staff or user.is_superuser or user.deleted_at is not None:
        return False
    if by.is_superuser:
        return True
    owned = Membership.objects.filter(user=by, role=Role.OWNER).values("team_id")
    theirs = Membership.objects.filter(user=user)
    return theirs.exists() and not theirs.exclude(team_id__in=owned).exists()


def person_login_link(*, user: User, by: User) -> str:
    """A fresh login link for a person who lost theirs, or forgot the password; earlier ones end."""
    if not user.is_active or not manages(by=by, user=user):
        raise PermissionDenied(_("You can make a link only for people who are in your teams and in no others."))
    with transaction.atomic():
        login_links_end(user)
        audit(AuditAction.LINK_MADE, user, by=by)
        return login_link_create(user=user)


@transaction.atomic
def person_set_active(*, user: User, active: bool, by: User) -> None:
    """Deactivate a person, or let them in again. Their sessions, links and tokens end for good; open sockets notice
    within seconds."""
    if not manages(by=by, user=user):
        raise PermissionDenied(_("You can do that only to people who are in your teams and in no others."))
    User.objects.filter(pk=user.pk).update(is_active=active)
    user.is_active = active
    if not active:
        LoginLink.objects.filter(user=user).delete()
        sessions_end(user)
        tokens_end(user, TokenEnd.DEACTIVATED, by=by)
    audit(AuditAction.REACTIVATED if active else AuditAction.DEACTIVATED, user, by=by)


def sessions_end(user: User) -> None:
    """End all sessions of a person: a paused one would become valid when they are let in again."""
    for session in Session.objects.filter(expire_date__gt=timezone.now()).iterator():
        if session.get_decoded().get(SESSION_KEY) == str(user.pk):
            session.delete()


def project_create(*, team: Team, name: str, by: User) -> Project:
    """A new project of a team; its address is made from its name."""
    base = slugify(name)[:60] or "project"
    for number in range(1, 1000):
        slug = base if number == 1 else f"{base}-{number}"
        if Project.objects.filter(slug=slug).exists():
            continue
        try:
            with transaction.atomic():
                if not Team.objects.select_for_update(no_key=True).filter(pk=team.pk).exists():  # deleted meanwhile
                    raise ValidationError({"team": _("This team was deleted.")})
                project = Project.objects.create(team=team, name=name, slug=slug)
                audit(AuditAction.PROJECT_ADDED, project, by=by)
        except IntegrityError:
            continue
        logger.info(
            "project created", extra={"action": "project_create", "project_id": str(project.pk), "by": str(by.pk)}
        )
        return project
    raise ValidationError({"name": _("Too many projects have this name; choose another.")})


# A project's Hugging Face token: an encrypted secret, never shown.
#
# The trainer of a run whose base model is fetched from Hugging Face gets it, and nothing else does: no tracker, no
# chat, no environment, no reward code. It fetches into a folder of its own project: from a cache that all projects
# share, a project without a token could train what this token opened.

CACHE = "hub"
MIN_TOKEN_CHARS, MAX_TOKEN_CHARS = 8, 500
_TOKEN = re.compile(r"[\x21-\x7e]+")


def hub_token_set(*, project: Project, token: str) -> None:
    """Keep this token instead of the one before; runs at work keep theirs. Raises ``ValidationError``."""
    token = token.strip()
    if not MIN_TOKEN_CHARS <= len(token) <= MAX_TOKEN_CHARS or not _TOKEN.fullmatch(token):
        raise ValidationError(
            {"token": _("That is no token: paste it as Hugging Face shows it. It usually begins with hf_.")}
        )
    with transaction.atomic():
        audit(AuditAction.HUB_TOKEN_SET, project)
        secret_set(Kind.HUB_TOKEN, project.pk, token)


def hub_token_remove(*, project: Project) -> bool:
    """Delete the token. Returns whether there was one. What was fetched with it stays in the project."""
    if hub_token_since(project) is None:
        return False
    with transaction.atomic():
        audit(AuditAction.HUB_TOKEN_REMOVED, project)
        secrets_forget([project.pk], Kind.HUB_TOKEN)
    return True


def hub_token_since(project: Project) -> datetime | None:
    """When the token was set; ``None`` where there is none."""
    return secret_since(Kind.HUB_TOKEN, project.pk)


def hub_env(project: Project, config: JobConfig) -> dict[str, str]:
    """The variables that let the trainer of a resolved config fetch its base model as the project.

    Where the token was removed, what it had fetched can still be used. Raises ``SecretUnreadable``.
    """
    if not (config.needs_model and config.model.from_hub):
        return {}
    cache = project_dir(project.pk) / CACHE
    found = secret_of(Kind.HUB_TOKEN, project.pk)
    token = {MODEL_TOKEN: found} if found else {}
    return {**token, MODEL_CACHE: str(cache)} if token or cache.is_dir() else {}


# The switches that an administrator sets for the whole installation.

CUSTOM_REWARDS = "custom_rewards"


def custom_rewards_on() -> bool:
    """Whether members may write rewards in Python: the operator allowed it, and an administrator switched it on."""
    return bool(settings.CUSTOM_REWARDS) and SiteSwitch.objects.filter(name=CUSTOM_REWARDS, on=True).exists()


@transaction.atomic
def custom_rewards_switch(*, by: User, on: bool) -> None:
    """Switch custom rewards, with a row in the audit. Raises ``ValidationError`` where the operator forbids it."""
    if on and not settings.CUSTOM_REWARDS:
        raise ValidationError(_("The operator of this installation has not allowed custom rewards."))
    SiteSwitch.objects.update_or_create(name=CUSTOM_REWARDS, defaults={"on": on})
    audit(AuditAction.CUSTOM_ON if on else AuditAction.CUSTOM_OFF, by=by)


# What a new password ends. It is a validator because Django calls validators for every password that was set, by a
# page, a form or a command, and not for one that was only hashed again.


class EndsCredentials:
    """Refuses no password; tokens and links of the account end with the old one."""

    def validate(self, password: str, user: Any = None) -> None:
        """Accept every password."""

    def get_help_text(self) -> str:
        """Empty: it sets no rule for passwords."""
        return ""

    def password_changed(self, password: str, user: User) -> None:
        """End the person's tokens and the login links that were not used. Their other sessions end by themselves."""
        login_links_end(user)
        tokens_end(user, TokenEnd.PASSWORD)


# Deleting a person: their access and what is theirs alone goes at once, what they made stays with their team.
#
# The row stays, without name, mail address and password, because runs, votes, comments and machine accounts refer to
# it; pages show ``deleted-person-…`` there. Rows of the audit keep the name as it was: they are never changed.

STAYS = frozenset({"votes.RoundVoter", "votes.Vote"})
"""What a person did that counts for others: votes stay, under the name that the person then has."""
SHOWN = 5


def may_delete(*, by: User, user: User) -> bool:
    """Whether ``by`` may delete the person: everyone themself, an administrator whom they manage."""
    if user.deleted_at is not None or user.is_machine:
        return False
    return by.pk == user.pk or (by.is_superuser and manages(by=by, user=user))


def obstacles(user: User) -> list[str]:
    """Sentences on why a person cannot be deleted now; empty where they can."""
    against = []
    if alone := _teams_without(user):
        names = ", ".join(team.name for team in alone[:SHOWN])
        against.append(
            _("These teams would have no owner: %(names)s. Make another person an owner first, or delete the team.")
            % {"names": names}
        )
    others = User.objects.filter(is_superuser=True, is_active=True).exclude(pk=user.pk)
    if user.is_superuser and not others.exists():
        against.append(_("There would be no administrator: make another person one first."))
    return against


def _teams_without(user: User) -> list[Team]:
    """The teams of which a person is the only owner who can log in."""
    owned = Team.objects.filter(memberships__user=user, memberships__role=Role.OWNER).order_by("name")
    others = Membership.objects.filter(role=Role.OWNER, user__is_active=True).exclude(user=user)
    return list(owned.exclude(pk__in=others.values("team")))


def lost_with(user: User) -> list[str]:
    """Sentences on what goes with the person."""
    tokens = ApiToken.objects.filter(user=user, revoked_at=None).count()
    teams = user.memberships.count()
    return [
        ngettext("their place in %(n)s team", "their places in %(n)s teams", teams) % {"n": teams},
        ngettext("%(n)s API token", "%(n)s API tokens", tokens) % {"n": tokens},
        _("their sessions, login links, identities of single sign-on and mail address"),
        _("their notifications, stars, columns and the links that they shared"),
    ]


def kept_of(user: User) -> list[str]:
    """Sentences on what stays."""
    return [
        _("Runs, datasets, comments and votes stay, under the name %(name)s.") % {"name": name_after(user)},
        _("The audit keeps the name: its rows are never changed."),
    ]


def name_after(user: User) -> str:
    """The name under which pages show what a deleted person made."""
    return f"deleted-person-{user.pk.hex[:12]}"


def person_delete(*, user: User, by: User) -> None:
    """Delete a person. Raises ``PermissionDenied``, and ``ValidationError`` (``conflict``) while a team or the site
    would be left without its owner or administrator.

    1. The owners of the person's teams and the administrators are locked: of two who leave at once the second sees
       that the first has gone.
    2. What is theirs alone goes: every row that belongs to a person, but for ``STAYS``.
    3. The row of the person stays without what names them, and cannot log in.
    """
    with transaction.atomic():
        teams = Membership.objects.filter(user=user).values("team")
        list(Membership.objects.select_for_update().filter(team__in=teams, role=Role.OWNER).order_by("pk"))
        list(User.objects.select_for_update().filter(Q(is_superuser=True) | Q(pk=user.pk)).order_by("pk"))
        user.refresh_from_db()
        if not may_delete(by=by, user=user):
            raise PermissionDenied(_("Only an administrator may delete another person, and no administrator."))
        if against := obstacles(user):
            raise ValidationError(" ".join(against), code="conflict")
        audit(AuditAction.PERSON_DELETED, user, by=by, subject=user.username)
        sessions_end(user)
        for model, field in _of_a_person():
            model._base_manager.filter(**{field: user}).delete()
        user.set_unusable_password()
        user.username, user.email, user.first_name, user.last_name = name_after(user), "", "", ""
        user.is_active = user.is_staff = user.is_superuser = False
        user.last_login, user.deleted_at = None, Now()
        user.save()


def _of_a_person() -> list[tuple[type[Model], str]]:
    """The models whose rows belong to one person, with the field that names them."""
    found = []
    for relation in User._meta.get_fields(include_hidden=True):
        model = relation.related_model
        if getattr(relation, "on_delete", None) is CASCADE and model._meta.label not in STAYS:  # type: ignore[union-attr]
            found.append((model, relation.field.name))  # type: ignore[union-attr]
    return found  # type: ignore[return-value]
