"""The one way to reach an object for a person: every page, API route and socket asks here.

A stranger gets ``Http404`` (they must not learn that the object exists), a member without the needed role gets
``PermissionDenied``. ``objects.get`` on these models outside selectors and this module fails the lint test.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar
from uuid import UUID

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.db.models import Model, OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _

from webapp.people.teams.models import ApiToken, Membership, Project, Role, Team, TokenScope, User

M = TypeVar("M", bound=Model)
RANK = {Role.VIEWER: 1, Role.EDITOR: 2, Role.OWNER: 3}


def role_in(user: User | AnonymousUser, project: Project) -> Role | None:
    """The person's role in the project's team; ``None`` for strangers and anonymous visitors."""
    if not user.is_authenticated or not user.is_active:
        return None
    found = Membership.objects.filter(team_id=project.team_id, user_id=user.pk).values_list("role", flat=True).first()
    return _within_token(user, project, found)


def _within_token(user: User | AnonymousUser, project: Project, found: str | None) -> Role | None:
    """A membership's role, limited by the token of the person's script."""
    token = token_of(user)
    if not found or (token is not None and token.project_id not in {None, project.pk}):
        return None
    return Role(found) if token is None else min(Role(found), Role(token.role), key=lambda role: RANK[role])


def token_of(user: User | AnonymousUser) -> ApiToken | None:
    """The token of the person's script, which limits its rights. ``None`` in a browser."""
    return getattr(user, "api_token", None)


def require_scope(user: User | AnonymousUser, open_to: Collection[TokenScope]) -> None:
    """Refuse a token whose scope is narrower than its role, unless what it asks for is open to that scope."""
    token = token_of(user)
    if token is not None and token.scope and token.scope not in open_to:
        raise PermissionDenied(_("This token may only %(what)s.") % {"what": TokenScope(token.scope).label})


def require_person(user: User) -> None:
    """Refuse a token: only a person may make tokens, or a leaked token could make a new one before its end."""
    if token_of(user) is not None:
        raise PermissionDenied(_("A token cannot make tokens: a person does that in a browser."))


def administrator(request: HttpRequest) -> User:
    """The person of the request, if they administrate this installation."""
    if not isinstance(request.user, User) or not request.user.is_superuser:
        raise PermissionDenied(_("Only an administrator of this installation may do that."))
    return request.user


def may_start_projects(user: User) -> bool:
    """Whether this request may start projects: always in a browser; a token must be unlimited."""
    token = token_of(user)
    return token is None or (token.role == Role.OWNER and token.project_id is None)


def _require_role(role: Role, need: Role) -> None:
    if RANK[role] < RANK[need]:
        raise PermissionDenied(
            _("Your role in this team is %(role)s; this needs %(need)s.") % {"role": role.label, "need": need.label}
        )


def _one_or_none(rows: QuerySet[M]) -> M | None:
    """The row of a key that one row has. ``first`` would order it, which takes Django longer than to read it."""
    try:
        return rows.get()
    except ObjectDoesNotExist:
        return None


def project_for(user: User | AnonymousUser, slug: str, *, need: Role = Role.VIEWER) -> Project:
    """The project with this slug, if the person's role is at least ``need``. Its ``role`` attribute is that role."""
    if not user.is_authenticated or not user.is_active:
        raise Http404
    roles = Membership.objects.filter(team_id=OuterRef("team_id"), user_id=user.pk).values("role")[:1]
    rows = Project.objects.select_related("team").annotate(membership=Subquery(roles))
    project = _one_or_none(rows.filter(slug=slug))
    role = _within_token(user, project, project.membership) if project else None  # type: ignore[attr-defined]
    if project is None or role is None:
        raise Http404
    _require_role(role, need)
    project.role = role  # type: ignore[attr-defined]
    return project


def object_for(
    user: User | AnonymousUser,
    model: type[M],
    pk: UUID | str,
    *,
    need: Role = Role.VIEWER,
    within: QuerySet[Any] | None = None,
    project: Project | None = None,
) -> M:
    """The object with this id, if the person's role in its project is at least ``need``.

    ``within`` is a queryset to start from (for ``select_related``). The model has a ``project`` field. ``project`` is
    what ``project_for`` just returned for this person: their role in it is not read a second time.
    """
    try:
        found = _one_or_none((within if within is not None else model._default_manager.all()).filter(pk=UUID(str(pk))))
    except ValueError:
        found = None
    if found is None:
        raise Http404
    role = getattr(project, "role", None)
    if project is not None and role is not None and getattr(found, "project_id", None) == project.pk:
        _require_role(role, need)
        return found
    project_for(user, found.project.slug, need=need)  # type: ignore[union-attr]
    return found


def own(
    request: HttpRequest,
    slug: str,
    model: type[M],
    pk: UUID | str,
    *,
    need: Role = Role.VIEWER,
    within: Callable[[Project], QuerySet[M]] | None = None,
) -> tuple[Project, M]:
    """The project of an address and its object with this id, if the person's role in it is at least ``need``.

    ``within`` gives the rows of the project to look in (for ``select_related``), else these are all of the model.
    """
    project = project_for(request.user, slug, need=need)
    rows = model._default_manager.filter(project=project) if within is None else within(project)
    return project, object_for(request.user, model, pk, need=need, within=rows, project=project)


def team_for(user: User | AnonymousUser, pk: UUID, *, need: Role) -> Team:
    """The team with this id, if the person's role in it is at least ``need``; a token must be limited to no project."""
    if not user.is_authenticated:
        raise Http404
    found = Membership.objects.filter(team=pk, user_id=user.pk, team__removed_at=None).select_related("team").first()
    token = token_of(user)
    if found is None or not user.is_active or (token is not None and token.project_id is not None):
        raise Http404
    role = Role(found.role) if token is None else min(Role(found.role), Role(token.role), key=lambda role: RANK[role])
    _require_role(role, need)
    return found.team


def object_of_team(user: User | AnonymousUser, model: type[M], pk: UUID, *, need: Role) -> M:
    """The object with this id, if the person's role in its team is at least ``need``: for what outlives its project."""
    found: Any = model._default_manager.filter(pk=pk).first()
    role = role_in(user, found) if found is not None else None
    if role is None:
        raise Http404
    _require_role(role, need)
    return found  # type: ignore[no-any-return]


def projects_of(user: User | AnonymousUser) -> QuerySet[Project]:
    """The projects that a person may see, by name."""
    if not user.is_authenticated:
        return Project.objects.none()
    found = Project.objects.filter(team__memberships__user_id=user.pk).select_related("team").order_by("name")
    token = token_of(user)
    return found if token is None or token.project_id is None else found.filter(pk=token.project_id)


def role_of(project: Project) -> Role:
    """The role of the person for whom ``project_for`` fetched this project."""
    return Role(getattr(project, "role", Role.VIEWER))


def can_edit(project: Project) -> bool:
    """Whether the person for whom ``project_for`` fetched this project may write."""
    return RANK[role_of(project)] >= RANK[Role.EDITOR]
