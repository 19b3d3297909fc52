"""Room on the disk of the data folder: runs that paused because it was full go on by themselves once it is back.

A run needs as much as its newest checkpoint twice (a new one is written beside the old one) above the reserve. That is
more than the reserve at which it paused, so that it does not pause again at once.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from training.machine import reserve_bytes
from training.words import sentence
from webapp.engine.services import run_resume
from webapp.registry.models import Checkpoint
from webapp.runs.models import Run
from webapp.runs.states import RunState
from webapp.state_reasons import ROOM
from webapp.workers.identity import folder_problem

logger = logging.getLogger(__name__)
COPIES = 2


class Disk(NamedTuple):
    """The disk of the data folder, in bytes; ``reserve`` is what must stay free."""

    total: int
    free: int
    reserve: int


def disk() -> Disk:
    """As it is now, with the reserve below which a trainer pauses its run."""
    folder = Path(settings.DATA_DIR)
    found = shutil.disk_usage(folder)
    return Disk(found.total, found.free, reserve_bytes(folder))


def disk_text() -> str:
    """The disk in words."""
    now = disk()
    return _("The disk that holds the data folder has %(free)s free of %(total)s.") % {
        "free": filesizeformat(now.free),
        "total": filesizeformat(now.total),
    }


def needed_bytes(run: Run, now: Disk) -> int:
    """How much must be free before the run goes on."""
    newest = Checkpoint.objects.filter(run=run).order_by("-attempt", "-step").first()
    return now.reserve + COPIES * (newest.bytes if newest else 0) + now.reserve // 2


def resume_where_room() -> int:
    """Resume the runs that a full disk paused and that now have room, oldest first; return how many."""
    if folder_problem():
        return 0
    waiting = Run.objects.filter(state=RunState.PAUSED, error__code="storage_full").order_by("created_at")
    count, now = 0, disk()
    for run in waiting:
        if now.free < needed_bytes(run, now):
            continue
        reason = sentence(ROOM, free=filesizeformat(now.free))
        if run_resume(run=run, reason=reason).state == RunState.QUEUED:
            logger.info("resumed after a full disk", extra={"action": "room", "run_id": run.pk, "free": now.free})
            count += 1
    return count
