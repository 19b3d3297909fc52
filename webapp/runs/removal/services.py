"""Deleting files, runs, checkpoints and projects: hidden at once, gone by a worker, never half."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.db.models import CASCADE, CompositePrimaryKey, Model, Q, QuerySet
from django.db.models.functions import Now
from django.utils.translation import gettext, ngettext

from training.errors import DataError
from training.words import _, sentence
from webapp.common import objects, storage, work
from webapp.common.secrets.vault import secrets_forget
from webapp.common.work import Claim
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Machine, Project, Team
from webapp.people.teams.tokens import machine_end, machines_end_in
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, RegisteredModel
from webapp.runs.removal.models import Expiry, Kept, Removal, RemovalState
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.states import LEASED, TERMINAL, RunState


def removal_add(
    name: str, paths: Iterable[Path], owner: Project | Team, *, kind: str = "", object_id: UUID | None = None
) -> Removal:
    """Have a worker delete folders, and the row they belong to. Part of the caller's transaction.

    People of the team, or of the project's, see if it fails.
    """
    root = Path(settings.DATA_DIR)
    relative = [path.relative_to(root).as_posix() for path in paths]
    removal = Removal.objects.create(
        name=name[:200], paths=relative, kind=kind, object_id=object_id, team_id=_team_id(owner)
    )
    work.enqueue(removal)
    return removal


def _team_id(owner: Project | Team) -> UUID:
    return owner.pk if isinstance(owner, Team) else owner.team_id


def removal_retry(removal: Removal) -> bool:
    """Have a worker try a failed deletion again; false where that was asked for already."""
    failed = Removal.objects.filter(pk=removal.pk, state=RemovalState.FAILED)
    if not failed.update(state=RemovalState.WAITING, error=None, token="", tries=0, heard_at=None):
        return False
    work.enqueue(removal)
    return True


def files_delete(claim: Claim[Removal]) -> None:
    """Rename what is still there into the trash, then empty that. Raises ``DataError``."""
    trash = storage.trash_dir(claim.item.pk)
    try:
        trash.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number, relative in enumerate(claim.item.paths):
            path = Path(settings.DATA_DIR) / relative
            if path.exists():
                _move_to_trash(trash / f"{number}.{claim.token}", path)
            if objects.enabled():
                objects.unpublish(path)
        claim.report({"stage": "files"}, at_once=True)
        shutil.rmtree(trash)
    except OSError as exc:
        what = sentence(_("Its files cannot be deleted: {why}."), why=exc.strerror or "I/O error")
        raise DataError(what, hint=_("Fix the permissions or the disk of the data folder, then try again.")) from exc


def _move_to_trash(trash: Path, path: Path) -> None:
    try:
        os.replace(path, trash)
    except OSError:  # on another file system
        shutil.rmtree(path)


def bytes_of(paths: Iterable[Path]) -> int:
    """The bytes of folders on the disk; a file with several names counts once, links are not followed."""
    total, seen = 0, set()
    for path in paths:
        for folder, _folders, names in os.walk(path):
            for name in names:
                try:
                    stat = os.lstat(os.path.join(folder, name))
                except OSError:  # gone meanwhile
                    continue
                if (key := (stat.st_dev, stat.st_ino)) not in seen:
                    seen.add(key)
                    total += stat.st_size
    return total


def removal_failed(_removal: Removal, error: Any) -> dict[str, Any]:
    """The columns of a deletion that failed; its rows and files stay hidden, and its error says why."""
    return {"state": RemovalState.FAILED, "error": error.info.model_dump(mode="json")}


# Deleting runs, checkpoints, projects and teams.
#
# 1. What else uses the thing is listed and blocks the deletion (``used_by``); so does work that has not ended.
# 2. In one transaction it is hidden (``removed_at``; its name is free again), written into the audit, and a ``Removal``
#    is left for a worker. From here on no page shows it.
# 3. The worker deletes the rows that depend on it in batches, then the row, then the files by way of the trash. Each
#    part may be done twice, so after a worker was killed another one continues.
#
# Of a team the members stay until all else is gone: its owners see how far it is, and can try again if it fails.

BATCH = 1000
ROLLOUTS = 100
EXPIRY = "removal.expiry"
"""The kind of a deletion by a rule of retention; its object is the ``Expiry``."""
DELETE = "DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table} WHERE {column} = %s LIMIT %s))"
SHOWN = 3
BUSY = LEASED | {RunState.QUEUED}
TEAM = "teams.team"
Item = Run | Checkpoint | Project | Team


class Forecast(NamedTuple):
    """The effects of a deletion: sentences on everything deleted with it, the bytes (``None``: not counted), the
    objects that block it, and sentences on what stays. A person has no bytes (``weighs``)."""

    name: str
    bytes: int | None
    goes: list[str]
    against: list[str]
    stays: Sequence[str] = ()
    weighs: bool = True


def forecast(item: Item, *, weigh: bool = True) -> Forecast:
    """The forecast to read before confirming. To ``weigh`` a project or team reads the size of every file of it."""
    return Forecast(
        _shown_name(item), bytes_of(_paths_to_delete(item)) if weigh else None, _contents_lost(item), used_by(item)
    )


def remove(item: Item) -> None:
    """Hide it now and have it deleted. Raises ``ValidationError`` while something uses it."""
    acts: dict[type[Model], tuple[AuditAction, Callable[[Any], None]]] = {
        Run: (AuditAction.RUN_DELETED, _hide_run),
        Checkpoint: (AuditAction.CHECKPOINT_DELETED, lambda found: found.delete()),
        Project: (AuditAction.PROJECT_DELETED, _hide_project),
        Team: (AuditAction.TEAM_DELETED, _hide_team),
    }
    action, hide = acts[type(item)]
    with transaction.atomic():
        _lock_runs(item)
        if against := used_by(item):
            raise ValidationError(" ".join(against), code="conflict")
        name, kind, pk = _shown_name(item), item._meta.label_lower, item.pk
        audit(action, item, subject=name)
        removal_add(
            name,
            _paths_to_delete(item),
            item if isinstance(item, Team) else _project_of(item),
            kind="" if isinstance(item, Checkpoint) else kind,
            object_id=pk,
        )
        hide(item)


def _project_of(item: Run | Checkpoint | Project) -> Project:
    return item if isinstance(item, Project) else item.project


def _lock_runs(item: Item) -> None:
    """Lock the runs, so that none is claimed, queued or resumed while the deletion is decided."""
    runs = Run.objects.filter(pk=_run_id(item)) if isinstance(item, Run | Checkpoint) else _runs_in(item)
    list(runs.select_for_update(no_key=True).order_by("pk").values_list("pk"))


def _runs_in(item: Project | Team) -> QuerySet[Run]:
    return Run.objects.filter(project__team=item) if isinstance(item, Team) else Run.objects.filter(project=item)


def _run_id(item: Run | Checkpoint) -> UUID:
    return item.pk if isinstance(item, Run) else item.run_id


def _hide_run(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(removed_at=Now(), name=str(run.pk), idempotency_key=None)


def _hide_project(project: Project) -> None:
    Run.objects.filter(project=project).update(removed_at=Now())
    machines_end_in(project)
    Project.objects.filter(pk=project.pk).update(removed_at=Now(), slug=str(project.pk))


def _hide_team(team: Team) -> None:
    for project in Project.objects.filter(team=team):
        _hide_project(project)
    for machine in Machine.objects.filter(team=team, ended_at=None).select_related("user"):
        machine_end(machine=machine, by=None, project=None)
    Team.objects.filter(pk=team.pk).update(removed_at=Now())


def _shown_name(item: Item) -> str:
    if isinstance(item, Checkpoint):
        return gettext("%(run)s, step %(step)s") % {"run": item.run.name, "step": item.step}
    return item.name


# --- What blocks it ---------------------------------------------------------------------------------------------------
def used_by(item: Item) -> list[str]:
    """Sentences on why it cannot be deleted now; empty where it can."""
    if isinstance(item, Project | Team):
        busy = _runs_in(item).filter(state__in=BUSY)
        against = _sentence_with_names(busy, gettext("Runs are active or queued; stop them first: %(names)s."))
        if isinstance(item, Team):
            # They belong to the team, and would be lost with it before their files are gone.
            open_ = Removal.objects.filter(team=item).exclude(state=RemovalState.DONE)
            against += _sentence_with_names(
                open_, gettext("Deletions in it are not finished; wait for them, or try them again: %(names)s.")
            )
        return against
    if isinstance(item, Run):
        against = [gettext("It is active or queued; stop it first.")] if _state_of_run(item) in BUSY else []
        models = RegisteredModel.objects.filter(checkpoint__run=item)
        waiting = item.followers.exclude(state__in=TERMINAL)
        against += _sentence_with_names(waiting, gettext("A run waits for its model: %(names)s."))
        folder = storage.run_dir(item.pk)
    else:
        against = (
            [] if _state_of_run(item.run) in TERMINAL else [gettext("Its run has not ended and may continue from it.")]
        )
        models, folder = RegisteredModel.objects.filter(checkpoint=item), item.folder
    against += _sentence_with_names(models, gettext("A model is registered from it; remove that first: %(names)s."))
    return against + _sentence_with_names(
        _starting_from(item, folder), gettext("A run that has not ended starts from it: %(names)s.")
    )


def _state_of_run(run: Run) -> str:
    return str(Run.objects.filter(pk=run.pk).values_list("state", flat=True).first())


def _starting_from(item: Run | Checkpoint, folder: Path) -> QuerySet[Run]:
    """Open runs whose weights lie in the folder, or that name the run."""
    named = Q(resolved__model__source__startswith=str(folder))
    if isinstance(item, Run):
        named |= Q(config__model__source=item.reference) | Q(resume_checkpoint__run=item)
    else:
        named |= Q(resume_checkpoint=item)
    return Run.objects.filter(named, project=item.project_id).exclude(state__in=TERMINAL).exclude(pk=_run_id(item))


def _sentence_with_names(rows: QuerySet[Any], sentence: str) -> list[str]:
    names = list(rows.order_by().values_list("name", flat=True)[:SHOWN])
    return [sentence % {"names": ", ".join(names)}] if names else []


# --- What goes with it ------------------------------------------------------------------------------------------------
def _contents_lost(item: Item) -> list[str]:
    if isinstance(item, Checkpoint):
        return []
    if isinstance(item, Run):
        rollouts, checkpoints = item.rollouts.count(), item.checkpoints.count()  # type: ignore[attr-defined]
        return [
            ngettext("%(n)s rollout with its turns", "%(n)s rollouts with their turns", rollouts) % {"n": rollouts},
            ngettext("%(n)s checkpoint", "%(n)s checkpoints", checkpoints) % {"n": checkpoints},
            gettext("its curves, log and events"),
        ]
    if isinstance(item, Team):
        return _contents_of_team(item)
    runs, datasets = Run.objects.filter(project=item).count(), item.datasets.count()  # type: ignore[attr-defined]
    return [
        ngettext("%(n)s run with all that it recorded", "%(n)s runs with all that they recorded", runs) % {"n": runs},
        ngettext("%(n)s dataset", "%(n)s datasets", datasets) % {"n": datasets},
        gettext("its reward specs, rollout sets, environments, endpoints and models"),
    ]


def _contents_of_team(team: Team) -> list[str]:
    projects, runs = Project.objects.filter(team=team), _runs_in(team).count()
    names = ", ".join(projects.order_by("name").values_list("name", flat=True)[:SHOWN])
    n, people = projects.count(), team.memberships.filter(user__is_machine=False).count()
    machines = Machine.objects.filter(team=team, ended_at=None).count()
    return [
        (
            ngettext("%(n)s project: %(names)s", "%(n)s projects: %(names)s", n)
            if n <= SHOWN
            else gettext("%(n)s projects: %(names)s and others")
        )
        % {"n": n, "names": names or "–"},
        ngettext("%(n)s run with all that it recorded", "%(n)s runs with all that they recorded", runs) % {"n": runs},
        ngettext(
            "the membership of %(n)s person, whose account stays",
            "the memberships of %(n)s people, whose accounts stay",
            people,
        )
        % {"n": people},
        ngettext("%(n)s machine account with its tokens", "%(n)s machine accounts with their tokens", machines)
        % {"n": machines},
    ]


def _paths_to_delete(item: Item) -> list[Path]:
    if isinstance(item, Checkpoint):
        return [storage.run_dir(item.run_id) / item.path] if item.folder else []  # ``folder`` has checked the path
    if isinstance(item, Run):
        return [storage.run_dir(item.pk)]
    if isinstance(item, Team):
        return [path for project in Project.objects.filter(team=item) for path in _paths_to_delete(project)]
    folders = {
        "datasets": storage.dataset_dir,
        "rollout_sets": storage.rollout_set_dir,
        "rescorings": storage.rescoring_dir,
        "imports": storage.import_dir,
    }
    found = [storage.project_dir(item.pk)]
    found += [storage.run_dir(pk) for pk in Run.all_objects.filter(project=item).values_list("pk", flat=True)]
    for name, folder in folders.items():
        found += [folder(pk) for pk in getattr(item, name).values_list("pk", flat=True)]
    return found


# --- The worker -------------------------------------------------------------------------------------------------------
def removal_run(claim: Claim[Removal]) -> None:
    """Delete the rows, then the files."""
    removal = claim.item
    if removal.kind == "runs.run":
        _delete_run(claim, str(removal.object_id))
    elif removal.kind == "teams.project":
        _delete_project(claim, str(removal.object_id))
    elif removal.kind == TEAM:
        for project in Project.all_objects.filter(team_id=str(removal.object_id)).values_list("pk", flat=True):
            _delete_project(claim, str(project))
    elif removal.kind == EXPIRY:
        _delete_turns(claim)
    files_delete(claim)
    if removal.kind == TEAM:
        claim.keep(team=None)  # it would go with the team
        Team.all_objects.filter(pk=str(removal.object_id)).delete()
    claim.finish(state=RemovalState.DONE)


def _delete_project(claim: Claim[Removal], pk: str) -> None:
    for run_id in Run.all_objects.filter(project_id=pk).values_list("pk", flat=True):
        _delete_run(claim, str(run_id))
    project: Any = Project(pk=UUID(pk))  # for its related rows: the project's own may be gone since an earlier try
    environments = list(project.environments.values_list("pk", flat=True))
    others = (project.endpoints, project.channels)
    secrets_forget([project.pk, *environments, *(pk for rows in others for pk in rows.values_list("pk", flat=True))])
    project.environments.all().delete()  # the keeper ends what still runs of them
    claim.item.paths += [f"environments/{storage.environment_dir(found).name}" for found in environments]
    claim.item.paths.append(f"projects/{storage.project_dir(project.pk).name}")
    claim.keep(paths=claim.item.paths)
    Project.all_objects.filter(pk=pk).delete()


def _delete_run(claim: Claim[Removal], pk: str) -> None:
    """A run of 20,000 rollouts is hundreds of thousands of rows: no statement takes more than a batch of them."""
    for relation in Run._meta.related_objects:
        if getattr(relation, "on_delete", None) is not CASCADE:
            continue
        while _delete_batch(relation.related_model, relation.field, pk):
            claim.report({"stage": "rows"})
    Run.all_objects.filter(pk=pk).delete()


def _delete_turns(claim: Claim[Removal]) -> None:
    """Delete the turns that a rule removes, each rollout's at once: a transcript is whole or gone.

    What a run records after it was resumed stays.
    """
    expiry = Expiry.objects.filter(removal=claim.item, kind=Kept.WORDS).first()
    if expiry is None or expiry.run_id is None:  # of another kind, or the run was deleted meanwhile
        return
    rollouts = Rollout.objects.filter(run=expiry.run_id).order_by()
    for step in sorted(rollouts.values_list("step", flat=True).distinct()):
        ids = list(rollouts.filter(step=step).values_list("pk", flat=True))
        for start in range(0, len(ids), ROLLOUTS):
            Turn.objects.filter(rollout__in=ids[start : start + ROLLOUTS], seq__lte=expiry.seq).delete()
            claim.report({"stage": "rows"})


def _delete_batch(model: Any, field: Any, pk: str) -> int:
    """Delete a batch of the rows whose ``field`` is ``pk``. Returns how many."""
    if isinstance(model._meta.pk, CompositePrimaryKey):
        # No row depends on such a row, and PostgreSQL takes a second to find 1,000 of them by keys of four columns.
        with connection.cursor() as cursor:
            cursor.execute(DELETE.format(table=model._meta.db_table, column=field.column), [pk, BATCH])
            return int(cursor.rowcount)
    rows = model._base_manager.filter(**{field.attname: pk}).order_by()
    if keys := list(rows.values_list("pk", flat=True)[:BATCH]):
        model._base_manager.filter(pk__in=keys).delete()
    return len(keys)
