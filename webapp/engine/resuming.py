"""Where a run can resume: at its own newest whole checkpoint, or at the one of its parent."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import Case, Q, When
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from training.algorithms.checkpoints import pin, verify
from training.errors import ModelError
from training.machine import reserve_bytes, write_refusal
from training.reasons import os_reason
from webapp.common.storage import attempt_dir, run_dir
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, CheckpointState
from webapp.runs.states import TERMINAL, RunState

LOOKED_AT = 20
WHOLE_MOST = 200
SAVED_MOST = 300
RESUMABLE = frozenset({RunState.PAUSED, RunState.FAILED, RunState.CANCELLED})


def newest_checkpoint(run: Run, *, final: bool = False) -> Checkpoint | None:
    """The newest checkpoint that is marked whole and still there: of the latest attempt, then of the highest step.

    A later attempt may have begun below a damaged checkpoint, so its lower steps are newer. With ``final`` the model
    that a finished run left counts too.
    """
    return next(_whole_on_disk(run, final=final), None)


def saved_checkpoints(run: Run) -> list[Checkpoint]:
    """The run's checkpoints: whole ones first, the newest first, then deleted ones; ``SAVED_MOST`` at most."""
    gone = Case(When(state=CheckpointState.WHOLE, then=0), default=1)
    return list(Checkpoint.objects.filter(run=run).order_by(gone, "-attempt", "-step", "final")[:SAVED_MOST])


def whole_checkpoints(run: Run) -> list[Checkpoint]:
    """The run's checkpoints that are marked whole, finished models too, the newest first; ``WHOLE_MOST`` at most."""
    return whole_among(saved_checkpoints(run))


def whole_among(saved: Sequence[Checkpoint]) -> list[Checkpoint]:
    """``whole_checkpoints`` among checkpoints that were read before."""
    return [each for each in saved if each.state == CheckpointState.WHOLE][:WHOLE_MOST]


def _whole_on_disk(run: Run, *, final: bool = False) -> Iterator[Checkpoint]:
    rows = Checkpoint.objects.filter(run=run, state=CheckpointState.WHOLE)
    rows = rows.filter(Q(final=False) | Q(final=final)).order_by("-attempt", "-step", "final")
    return (row for row in rows[:LOOKED_AT] if row.folder.is_dir())


def resume_from(run: Run) -> Path | None:
    """The checkpoint, or the folder of all attempts, that the trainer starts from; ``None``: at step 0.

    A later attempt gets the folder of all: the trainer takes the newest whole checkpoint by (attempt, step) and
    sets damaged ones aside; without one it begins at step 0 and reports what was lost. A child without a whole one gets
    its parent's, which must be whole, because to begin without it would silently train another model. Raises
    ``ModelError``.
    """
    if run.resume_step is None:
        began = run.attempt > 1 or newest_checkpoint(run) is not None
        return run_dir(run.pk) if began and run.method.trains else None
    if any(verify(own.folder) for own in _whole_on_disk(run)):
        return run_dir(run.pk)
    source = run.resume_checkpoint
    if source is None or source.state != CheckpointState.WHOLE or verify(source.folder) is None:
        raise ModelError(
            f"The checkpoint of step {run.resume_step} that this run starts from is damaged or gone.",
            hint="Start again from another checkpoint of the parent run.",
        )
    return source.folder


def pin_used(run: Run) -> None:
    """Have the trainer leave the checkpoints that a model is registered from, or that an open run starts from."""
    started = Run.objects.filter(resume_checkpoint__run=run).exclude(state__in=TERMINAL).values("resume_checkpoint")
    used = Q(models__isnull=False) | Q(pk__in=started)
    for checkpoint in Checkpoint.objects.filter(used, run=run, state=CheckpointState.WHOLE).distinct():
        if checkpoint.folder.is_dir():
            pin(checkpoint.folder)


def earlier_folders(run_id: UUID, attempt: int) -> list[Path]:
    """Folders of the attempts before this one that are still there, oldest first."""
    folders = [attempt_dir(run_id, number) for number in range(1, attempt)]
    return [folder for folder in folders if folder.is_dir()]


def can_resume(run: Run) -> bool:
    """Whether the same run can continue in a new attempt. One that no worker ever had simply waits again."""
    return GoingOn(run).can_resume


def branch_point(run: Run, chosen: str = "", step: int | None = None) -> Checkpoint | None:
    """The checkpoint that a child with changed options starts from: the newest one, the ``chosen`` one by its id, or
    that of a ``step``, of several the latest attempt's. ``None`` while the run is at work, and where there is no such
    checkpoint.
    """
    newest = GoingOn(run).branch_point
    if newest is None or not (chosen or step is not None):
        return newest
    rows = Checkpoint.objects.filter(run=run, state=CheckpointState.WHOLE, final=False).order_by("-attempt")
    try:
        rows = rows.filter(pk=UUID(chosen)) if chosen else rows.filter(step=step or 0)
        rows = rows.filter(pk=UUID(chosen)) if step is None else rows.filter(step=step)
    except ValueError:
        return None
    return next((found for found in rows if found.folder.is_dir()), None)


@dataclass
class GoingOn:
    """Where a run could resume now. Its checkpoints are read once, for a page that shows several things of them.
    ``whole`` are its ``whole_checkpoints`` where they were read before."""

    run: Run
    whole: Sequence[Checkpoint] | None = None

    @cached_property
    def newest(self) -> Checkpoint | None:
        """``newest_checkpoint`` of the run."""
        if self.whole is None:
            return newest_checkpoint(self.run)
        return next((found for found in self.whole if not found.final and found.folder.is_dir()), None)

    @property
    def can_resume(self) -> bool:
        """``can_resume`` of the run."""
        run = self.run
        if run.imported or run.state not in RESUMABLE:
            return False
        if run.state == RunState.PAUSED or run.attempt == 0:
            return True
        if not run.method.trains:
            return run.step > 0
        return run.resume_step is not None or self.newest is not None

    @property
    def branch_point(self) -> Checkpoint | None:
        """``branch_point`` of the run."""
        ended = self.run.state in TERMINAL or self.run.state == RunState.PAUSED
        return self.newest if ended and not self.run.imported and self.run.method.trains else None


# --- Room -----------------------------------------------------------------------------------------------------------
# The disk of the data folder: how much room there is, how much a run needs that a full disk paused, and whether it
# can be written at all.
#
# A run needs as much as its newest checkpoint twice (a new one is written before the old one goes) above the reserve.
# That is more than the reserve at which it paused, so that it does not pause again at once.

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
