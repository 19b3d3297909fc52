"""Deleting a person: their access and what is theirs alone goes at once, what they made stays with their team.

The row stays, without name, mail address and password, because runs, votes, comments and machine accounts refer to it;
pages show ``deleted-person-…`` there. Rows of the audit keep the name as it was: they are never changed.
"""

from __future__ import annotations

from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import CASCADE, Model, Q
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from webapp.people.teams.audit import audit
from webapp.people.teams.models import ApiToken, AuditAction, Membership, Role, Team, User
from webapp.people.teams.services import manages, sessions_end

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
