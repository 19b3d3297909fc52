"""Reading people and teams for pages."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from webapp.people.teams.logins import token_hash
from webapp.people.teams.models import LoginLink, Membership, Project, Role, Team, User
from webapp.people.teams.services import manages


@dataclass
class MemberRow:
    """A member as the settings page shows them."""

    membership: Membership
    is_you: bool
    can_manage: bool


def login_link_usable(token: str) -> bool:
    """Whether a one-time link would log its user in now. Does not use it up."""
    found = LoginLink.objects.filter(token_hash=token_hash(token), used_at=None, expires_at__gt=timezone.now())
    return found.filter(user__is_active=True).exists()


def teams_owned(user: User) -> QuerySet[Team]:
    """The teams in which the person is an owner."""
    return Team.objects.filter(memberships__user=user, memberships__role=Role.OWNER).order_by("name")


def member_rows(project: Project, reader: User) -> list[MemberRow]:
    """The people of the team, owners first."""
    rank = {Role.OWNER: 0, Role.EDITOR: 1, Role.VIEWER: 2}
    members = list(_person_memberships(project.team))
    members.sort(key=lambda item: (rank[Role(item.role)], item.user.username.casefold()))
    owner = getattr(project, "role", None) == Role.OWNER
    return [
        MemberRow(item, item.user_id == reader.pk, owner and manages(by=reader, user=item.user)) for item in members
    ]


def people() -> QuerySet[User]:
    """Everyone who can log in or could, by name; not those who were deleted."""
    return User.objects.filter(is_machine=False, deleted_at=None).order_by("username")


def person(pk: UUID) -> User | None:
    """One of them."""
    return people().filter(pk=pk).first()


def membership_in(project: Project, pk: int) -> Membership | None:
    """One membership of the project's team."""
    return _person_memberships(project.team).filter(pk=pk).first()


def _person_memberships(team: Team) -> QuerySet[Membership]:
    return Membership.objects.filter(team=team, user__is_machine=False).select_related("user", "team")
