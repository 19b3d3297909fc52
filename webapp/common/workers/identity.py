"""Whether this process sees the data folder of its installation.

Runs, datasets and models lie in the data folder; the database only names them. A worker with another folder would
find nothing there, and would end or restart healthy runs. So ``<data>/identity`` carries an id that the database
knows. The first process of an installation writes both; a folder without the right one is never adopted by itself
(``manage.py adopt_data_folder`` does it).
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Literal
from uuid import UUID

from django.conf import settings
from django.db import transaction

from webapp.common.workers.models import DataFolder

logger = logging.getLogger(__name__)
IDENTITY_NAME = "identity"
Problem = Literal["", "no_identity", "other_identity"]


def identity_file() -> Path:
    """The file with the data folder's identity."""
    return Path(settings.DATA_DIR) / IDENTITY_NAME


def folder_identity() -> UUID | None:
    """The identity in the folder's file; ``None`` without a valid one."""
    try:
        return UUID(identity_file().read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return None


def folder_problem() -> Problem:
    """A sentence on why this process must not take work; empty when it sees the right folder.

    An installation without an identity (its first start, or the first after an update) gets the one of this folder.
    """
    known = DataFolder.objects.filter(pk=1).values_list("identity", flat=True).first()
    if known is None:
        known = _read_or_make_identity()
    found = folder_identity()
    if found == known:
        return ""
    return "no_identity" if found is None else "other_identity"


def _read_or_make_identity() -> UUID:
    found = folder_identity()
    with transaction.atomic():
        row, created = DataFolder.objects.get_or_create(pk=1, defaults={"identity": found} if found else {})
    if created:
        _write_identity(row.identity)
    return row.identity


def folder_adopt() -> UUID:
    """Make this the folder of the installation, also where it had another identity."""
    known = DataFolder.objects.filter(pk=1).values_list("identity", flat=True).first() or _read_or_make_identity()
    _write_identity(known)
    return known


def _write_identity(identity: UUID) -> None:
    path = identity_file()
    fresh = path.with_name(f"{IDENTITY_NAME}.{os.getpid()}")
    with suppress(FileNotFoundError):
        fresh.unlink()
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(f"{identity}\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    logger.info("data folder carries its identity", extra={"action": "identity", "identity": str(identity)})
