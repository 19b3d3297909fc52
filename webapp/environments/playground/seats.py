"""Who may play, and how much at once. Counted in this process: the web server is one."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404

from webapp.environments.models import Environment
from webapp.live.watching import FORBIDDEN, GONE, LOGIN, Closed, user_now
from webapp.people.teams.access import object_for
from webapp.people.teams.models import Role, User

PLAYS_MAX = 4
_by_person: Counter[UUID] = Counter()
_taken: set[tuple[UUID, UUID]] = set()


def authorise(scope: dict[str, Any], environment_id: UUID, *, again: bool) -> tuple[User, Environment]:
    """The person and the environment, or ``Closed`` with the code that says why not."""
    user = user_now(scope)
    if not user.is_authenticated:
        raise Closed(LOGIN)
    try:
        within = Environment.objects.select_related("project")
        return user, object_for(user, Environment, environment_id, need=Role.EDITOR, within=within)  # type: ignore[return-value]
    except PermissionDenied as exc:
        raise Closed(FORBIDDEN) from exc
    except Http404 as exc:
        raise Closed(FORBIDDEN if again else GONE) from exc


def take(person: UUID, environment: UUID) -> bool:
    """Count one tab: one for each environment, and ``PLAYS_MAX`` for each person. Returns whether there was room."""
    if _by_person[person] >= PLAYS_MAX or (person, environment) in _taken:
        return False
    _by_person[person] += 1
    _taken.add((person, environment))
    return True


def leave(person: UUID, environment: UUID) -> None:
    """Count one tab out."""
    _taken.discard((person, environment))
    _by_person[person] -= 1
    if _by_person[person] <= 0:
        del _by_person[person]


def seats_taken() -> int:
    """How many tabs play now."""
    return len(_taken)
