"""Deleting files: a folder is renamed into the trash first, so that a crash leaves it whole or out of the way."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings

from training.errors import DataError
from training.words import _, sentence
from webapp.common import work
from webapp.common.storage import trash_dir
from webapp.common.work import Claim
from webapp.people.teams.models import Project
from webapp.runs.removal.models import Removal, RemovalState


def removal_add(
    name: str, paths: Iterable[Path], project: Project, *, kind: str = "", object_id: UUID | None = None
) -> Removal:
    """Have a worker delete folders, and the row they belong to. Part of the caller's transaction."""
    root = Path(settings.DATA_DIR)
    relative = [path.relative_to(root).as_posix() for path in paths]
    removal = Removal.objects.create(
        name=name[:200], paths=relative, kind=kind, object_id=object_id, team_id=project.team_id
    )
    work.enqueue(removal)
    return removal


def removal_retry(removal: Removal) -> bool:
    """Have a worker try a failed deletion again; false where that was asked for already."""
    failed = Removal.objects.filter(pk=removal.pk, state=RemovalState.FAILED)
    if not failed.update(state=RemovalState.WAITING, error=None, token="", tries=0, heard_at=None):
        return False
    work.enqueue(removal)
    return True


def files_delete(claim: Claim[Removal]) -> None:
    """Rename what is still there into the trash, then empty that. Raises ``DataError``."""
    trash = trash_dir(claim.item.pk)
    try:
        trash.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number, relative in enumerate(claim.item.paths):
            path = Path(settings.DATA_DIR) / relative
            if path.exists():
                _move_to_trash(trash / f"{number}.{claim.token}", path)
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
    """What folders hold on the disk; a file with several names counts once, links are not followed."""
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
