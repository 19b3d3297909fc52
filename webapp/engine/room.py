"""The disk of the data folder: how much room there is, how much a run needs that a full disk paused, and whether it
can be written at all.

A run needs as much as its newest checkpoint twice (a new one is written before the old one goes) above the reserve.
That is more than the reserve at which it paused, so that it does not pause again at once.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from training.machine import reserve_bytes, write_refusal
from training.reasons import os_reason
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint

COPIES = 2  # the new checkpoint is written before the old one is deleted


class Disk(NamedTuple):
    """The disk of the data folder, in bytes; ``reserve`` is what must stay free."""

    total: int
    free: int
    reserve: int


def disk() -> Disk:
    """The disk now, with the reserve below which a trainer pauses its run."""
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


def fault_text() -> str:
    """A sentence if the data folder cannot be written: which folder, why, and what to do. Empty if it can."""
    fault = write_refusal(Path(settings.DATA_DIR))
    if fault is None:
        return ""
    return _(
        "The data folder %(folder)s cannot be written (%(why)s): the operator of this site has to free or repair its "
        "disk. Stored data can be read; runs continue by themselves once it can be written."
    ) % {"folder": settings.DATA_DIR, "why": os_reason(fault)}


def needed_bytes(run: Run, now: Disk) -> int:
    """How many bytes must be free before the run resumes."""
    newest = Checkpoint.objects.filter(run=run).order_by("-attempt", "-step").first()
    return now.reserve + COPIES * (newest.bytes if newest else 0) + now.reserve // 2
