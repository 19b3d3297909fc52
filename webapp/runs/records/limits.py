"""How many devices the runs of a project may have at once, and how much it may store: administrators decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, QuerySet, Sum
from django.utils.translation import gettext as _

from training.errors import StorageLimit
from webapp.common.pools import TRAIN
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.models import Run
from webapp.runs.records.usage import projects_seen
from webapp.runs.registry.models import Checkpoint, CheckpointState
from webapp.runs.removal.models import StoredSize
from webapp.runs.states import LEASED

MOST = 100_000
GIB = 2**30
Which = Literal["devices", "storage_gib"]


class Limit(NamedTuple):
    """A project's limits, ``None`` without one, the devices that its runs have now, and the bytes that it stores."""

    project: Project
    devices: int | None
    in_use: int
    storage_gib: int | None
    stored_bytes: int

    @property
    def stored_gib(self) -> float:
        """The same in GiB."""
        return self.stored_bytes / GIB


def limits_for(user: User) -> list[Limit]:
    """Those of the projects that a person may see, by name; administrators see all."""
    return _limits_of(projects_seen(user))


def _limits_of(projects: QuerySet[Project]) -> list[Limit]:
    rows = list(projects.order_by("name", "slug"))
    at_work = Run.objects.filter(project__in=rows, state__in=LEASED, pool=TRAIN, imported=False).order_by()
    used, stored = dict(at_work.values_list("project").annotate(Sum("devices"))), _stored_bytes(rows)
    return [Limit(one, one.device_limit, used.get(one.pk, 0), one.storage_limit, stored.get(one.pk, 0)) for one in rows]


def _stored_bytes(projects: list[Project]) -> dict[UUID, int]:
    """What projects store, by the sizes that retention and deletions count by: the whole checkpoints of their runs,
    with final models; what ended runs left of rollouts and logs, as measured after their ends; and datasets. Models of
    the hub belong to no project."""
    whole = Checkpoint.objects.filter(state=CheckpointState.WHOLE, run__removed_at=None, run__project__in=projects)
    left = StoredSize.objects.filter(run__removed_at=None, run__project__in=projects)
    datasets = Project.objects.filter(pk__in=[project.pk for project in projects])
    sums = [
        whole.order_by().values_list("run__project").annotate(Sum("bytes")),
        left.order_by().values_list("run__project").annotate(size=Sum(F("words") + F("tokens") + F("logs"))),
        datasets.order_by().values_list("pk").annotate(Sum("datasets__bytes")),
    ]
    found: dict[UUID, int] = {}
    for project, size in (row for rows in sums for row in rows):
        found[project] = found.get(project, 0) + (size or 0)
    return found


def require_storage(project: Project) -> None:
    """Raise ``StorageLimit`` where a project stores as much as it may: no run of it is launched then."""
    limit = Project.all_objects.values_list("storage_limit", flat=True).get(pk=project.pk)
    if limit is None or (stored := _stored_bytes([project]).get(project.pk, 0)) < limit * GIB:
        return
    sentence = _(
        "Project %(name)s stores %(stored)s GiB and may store %(limit)d GiB, so no run can be launched. Delete runs, "
        "checkpoints or datasets, or set rules under Retention in the project's settings; an administrator can raise "
        "the limit."
    )
    raise StorageLimit(sentence % {"name": project.name, "stored": f"{stored / GIB:,.1f}", "limit": limit})


def limit_change(*, slug: str, limits: Mapping[Which, int | None], user: User) -> Limit:
    """Give a project other limits: ``devices`` at once, ``storage_gib``; ``None`` is no limit, one left out stays.

    Runs that have devices keep them, and nothing that is stored goes. Raises ``ValidationError`` for a project that is
    not there, and for numbers outside 0 to ``MOST``.
    """
    for name, wanted in limits.items():
        if wanted is not None and not 0 <= wanted <= MOST:
            raise ValidationError({name: _("Between 0 and %(most)s, or empty for no limit.") % {"most": MOST}})
    with transaction.atomic():
        project = Project.objects.select_for_update(no_key=True).filter(slug=slug).first()
        if project is None:
            raise ValidationError({"project": _("There is no project “%s”.") % slug[:80]})
        if "devices" in limits and project.device_limit != limits["devices"]:
            project.device_limit = limits["devices"]
            _audit(AuditAction.DEVICE_LIMIT, project, user, _written(limits["devices"]))
        if "storage_gib" in limits and project.storage_limit != limits["storage_gib"]:
            project.storage_limit = limits["storage_gib"]
            _audit(AuditAction.STORAGE_LIMIT, project, user, _written(limits["storage_gib"], " GiB"))
        project.save(update_fields=["device_limit", "storage_limit"])
    return _limits_of(Project.objects.filter(pk=project.pk))[0]


def _audit(act: AuditAction, project: Project, user: User, to: str) -> None:
    audit(act, project, by=user, subject=f"{project.name}: {to}")


def _written(limit: int | None, unit: str = "") -> str:
    return "no limit" if limit is None else f"{limit}{unit}"
