"""Run states and the one table of legal transitions (docs/runs.md draws it).

``queued`` is waiting for a worker, ``preparing`` has one that loads model and data, ``running`` makes steps.
``stopping`` and
``pausing`` last until the trainer has ended. Nothing leaves ``succeeded``; ``failed`` and ``cancelled`` are left only
when a person resumes the run (``services.run_resume``).
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class RunState(models.TextChoices):
    """The state of a run, as a person sees it."""

    DRAFT = "draft", _("draft")
    QUEUED = "queued", _("queued")
    PREPARING = "preparing", _("preparing")
    RUNNING = "running", _("running")
    PAUSING = "pausing", _("pausing")
    PAUSED = "paused", _("paused")
    STOPPING = "stopping", _("stopping")
    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")


class Priority(models.TextChoices):
    """The class of a waiting run: every run of a higher one goes first."""

    HIGH = "high", _("high")
    NORMAL = "normal", _("normal")
    LOW = "low", _("low")


S = RunState
TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    S.DRAFT: frozenset({S.QUEUED, S.CANCELLED}),
    S.QUEUED: frozenset({S.PREPARING, S.CANCELLED, S.FAILED}),
    S.PREPARING: frozenset({S.RUNNING, S.QUEUED, S.PAUSING, S.PAUSED, S.STOPPING, S.SUCCEEDED, S.FAILED, S.CANCELLED}),
    S.RUNNING: frozenset({S.QUEUED, S.PAUSING, S.PAUSED, S.STOPPING, S.SUCCEEDED, S.FAILED, S.CANCELLED}),
    S.PAUSING: frozenset({S.PAUSED, S.QUEUED, S.STOPPING, S.SUCCEEDED, S.FAILED, S.CANCELLED}),
    S.PAUSED: frozenset({S.QUEUED, S.CANCELLED}),
    S.STOPPING: frozenset({S.CANCELLED, S.SUCCEEDED, S.FAILED}),
    S.SUCCEEDED: frozenset(),
    S.FAILED: frozenset({S.QUEUED}),
    S.CANCELLED: frozenset({S.QUEUED}),
}
TERMINAL = frozenset({S.SUCCEEDED, S.FAILED, S.CANCELLED})
LEASED = frozenset({S.PREPARING, S.RUNNING, S.PAUSING, S.STOPPING})
AT_WORK = frozenset({S.PREPARING, S.RUNNING})  # the trainer is expected to make progress


def sources_of(target: RunState) -> list[RunState]:
    """The states from which ``target`` can be reached in one step."""
    return [state for state, following in TRANSITIONS.items() if target in following]
