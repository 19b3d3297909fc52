"""What a project's rules do when an advisory opens: a checkpoint from before it is kept, and the run paused."""

from __future__ import annotations

import logging

from training.algorithms.checkpoints import pin
from training.doctor.rules import RULES
from training.words import sentence
from webapp.common.state_reasons import PAUSED_BY_DOCTOR
from webapp.engine.services import run_pause
from webapp.runs.advisories.models import Advisory, Reaction
from webapp.runs.advisories.selectors import checkpoint_before
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.states import RunState

logger = logging.getLogger(__name__)
MOST_KEPT = 5
"""Checkpoints kept for one run, so that advisories never fill the disk."""


def react(run: Run, row: Advisory, reaction: Reaction) -> None:
    """Do what the project's rule says, and note it in the row. A pause also keeps the checkpoint, to go back to."""
    if reaction == Reaction.NOTIFY:
        return
    row.kept = _pin_checkpoint_before(run, row.first)
    if reaction == Reaction.PAUSE and run.state in (RunState.PREPARING, RunState.RUNNING):
        reason = sentence(PAUSED_BY_DOCTOR, advisory=sentence(RULES[row.code].title))
        row.paused = run_pause(run=run, reason=reason).state == RunState.PAUSING
    row.save(update_fields=["kept", "paused"])


def _pin_checkpoint_before(run: Run, first: int) -> Checkpoint | None:
    """The newest checkpoint from before the step ``first``, which retention leaves from now on."""
    found = checkpoint_before(run, first)
    if found is None:
        return None
    others = set(Advisory.objects.filter(run=run, kept__isnull=False).values_list("kept", flat=True))
    if found.pk not in others and len(others) >= MOST_KEPT:
        return None
    try:
        pin(found.folder)
    except OSError as exc:
        logger.warning("not kept", extra={"action": "advisories", "run_id": run.pk, "error": repr(exc)[:200]})
        return None
    return found if found.folder.is_dir() else None  # retention may have deleted it meanwhile
