"""Deleting files: a folder is renamed into the trash first, so that a crash leaves it whole or out of the way."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings

from webapp import work
from webapp.removal.models import Removal, RemovalState
from webapp.storage import trash_dir
from webapp.work import Claim


def removal_add(name: str, paths: Iterable[Path], *, kind: str = "", object_id: UUID | None = None) -> Removal:
    """Have a worker delete folders, and the row they belong to. Part of the caller's transaction."""
    root = Path(settings.DATA_DIR)
    relative = [path.relative_to(root).as_posix() for path in paths]
    removal = Removal.objects.create(name=name[:200], paths=relative, kind=kind, object_id=object_id)
    work.enqueue(removal)
    return removal


def files_delete(claim: Claim[Removal]) -> None:
    """Rename what is still there into the trash, then empty that."""
    trash = trash_dir(claim.item.pk)
    trash.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number, relative in enumerate(claim.item.paths):
        path = Path(settings.DATA_DIR) / relative
        if path.exists():
            _into(trash / f"{number}.{claim.token}", path)
    claim.report({"stage": "files"}, at_once=True)
    shutil.rmtree(trash)


def _into(trash: Path, path: Path) -> None:
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
    """The columns of a deletion that came to nothing; its rows and files stay hidden, and its error tells why."""
    return {"state": RemovalState.FAILED, "error": error.info.model_dump(mode="json")}
