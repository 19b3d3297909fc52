"""How many devices the runs of a project may have at once: administrators of the installation say it."""

from __future__ import annotations

from typing import NamedTuple

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Sum
from django.utils.translation import gettext as _

from webapp.common.pools import TRAIN
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.models import Run
from webapp.runs.records.usage import projects_seen
from webapp.runs.states import LEASED

MOST = 100_000


class Limit(NamedTuple):
    """A project's limit, ``None`` without one, and the devices that its runs have now."""

    project: Project
    devices: int | None
    in_use: int


def limits_for(user: User) -> list[Limit]:
    """Those of the projects that a person may see, by name; administrators see all."""
    at_work = Run.objects.filter(state__in=LEASED, pool=TRAIN, imported=False).order_by()
    used = dict(at_work.values_list("project").annotate(Sum("devices")))
    rows = projects_seen(user).order_by("name", "slug")
    return [Limit(project, project.device_limit, used.get(project.pk, 0)) for project in rows]


def limit_change(*, slug: str, devices: int | None, user: User) -> Limit:
    """Let the runs of a project have so many devices at once from now on; with ``None`` as many as there are.

    Runs that have devices keep them. Raises ``ValidationError`` for a project that is not there, and for numbers
    outside 0 to ``MOST``.
    """
    if devices is not None and not 0 <= devices <= MOST:
        raise ValidationError({"devices": _("Between 0 and %(most)s, or empty for no limit.") % {"most": MOST}})
    with transaction.atomic():
        project = Project.objects.select_for_update(no_key=True).filter(slug=slug).first()
        if project is None:
            raise ValidationError({"project": _("There is no project “%s”.") % slug[:80]})
        if project.device_limit != devices:
            project.device_limit = devices
            project.save(update_fields=["device_limit"])
            to = "no limit" if devices is None else devices
            audit(AuditAction.DEVICE_LIMIT, project, by=user, subject=f"{project.name}: {to}")
    return next(limit for limit in limits_for(user) if limit.project == project)
