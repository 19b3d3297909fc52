"""Tasks that a run holds out: those of a new run, and what an evaluation on them can tell."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from django.utils.translation import gettext as _

from training.config import JobConfig
from training.data.checking import Identities, held_out
from training.errors import ConfigError
from training.evaluation import wilson
from webapp.datasets.rows import identities_of
from webapp.engine.resolve import Resolved, resolve
from webapp.launch.findings import Check
from webapp.launch.learned import overlap_of_plan
from webapp.people.teams.models import Project

SHARE = 0.1
LEAST_TASKS = 32
MOST_SHARE = 0.5
EVALUATIONS = 5


def hold_out(project: Project, config: JobConfig, every: int = 0) -> Resolved | None:
    """Hold out a tenth of the tasks of a run that learns from rollouts, at least ``LEAST_TASKS`` and at most about half
    of them, and evaluate on them ``every`` so many steps (0: five times).

    A config that says itself what it holds out stays as it is, and so does one whose tasks are too few to be parted.
    Returns what the config means, where that was asked and is known.
    """
    chosen = config.evaluate
    if config.method.learns_from != "rollouts" or chosen.share or chosen.data:
        return None
    resolved = resolved_or_none(project, config)
    known = _known_rows(resolved)
    share = max((share_for(rows) for rows in known), default=SHARE)
    if all(not held_out(rows, share).all() for rows in known):
        for each in (config, resolved.config) if resolved is not None else (config,):
            each.evaluate.share, each.evaluate.every = share, every or max(1, config.run.max_steps // EVALUATIONS)
    return resolved


def resolved_or_none(project: Project, config: JobConfig) -> Resolved | None:
    """What a config means; ``None`` while something is missing, which the check before the launch names."""
    try:
        return resolve(project, config)
    except ConfigError:
        return None


def share_for(rows: Identities) -> float:
    """The share of a dataset that holds out a tenth of its tasks, at least ``LEAST_TASKS`` and at most half of them.

    ``rows`` has shape (rows, 4), one row at least. The share is a multiple of 0.01, so a few more may be held out.
    """
    places = np.unique(rows[:, 3]) / 2.0**64
    wanted = max(1, min(LEAST_TASKS, len(places) // 2))
    if np.count_nonzero(places < SHARE) >= wanted:
        return SHARE
    return min(MOST_SHARE, math.floor(100 * float(places[wanted - 1]) + 1) / 100)


def _known_rows(resolved: Resolved | None) -> list[Identities]:
    """The identities of the rows of every stage or part, where they are known already."""
    found = [_rows_of(course) for course in resolved.config.courses] if resolved is not None else []
    return [rows for rows in found if rows is not None and len(rows)]


def _rows_of(course: JobConfig) -> Identities | None:
    rows = identities_of(Path(course.data.train)) if course.data.train else None
    return rows if rows is None else rows[: course.data.max_rows or None]


class HeldOut(NamedTuple):
    """How many different tasks are trained on, are held out, and of those are played: ``None`` where rows are not
    known."""

    trained: int | None = None
    held: int | None = None
    played: int | None = None

    @property
    def points(self) -> int | None:
        """By how many points a success of 50% on these tasks may be off, either way (95%, one try each)."""
        return None if not self.played else round(50 * (wilson(0.5, self.played)[1] - wilson(0.5, self.played)[0]))


def held_out_of(course: JobConfig) -> HeldOut:
    """What a resolved job, stage or part holds out and plays."""
    rows, chosen = _rows_of(course), course.evaluate
    if rows is None:
        return HeldOut()
    away = held_out(rows, chosen.share)
    others = identities_of(Path(chosen.data)) if chosen.data else rows[away]
    held = None if others is None else _tasks(others)
    return HeldOut(_tasks(rows[~away]), held, None if held is None else min(held, chosen.tasks or held))


def _tasks(rows: Identities) -> int:
    """How many different tasks the rows have."""
    return len(np.unique(rows[:, 3]))


# --- Findings before a launch ---------------------------------------------------------------------------------------
FEW_TASKS = 25


def held_out_check(project: Project, course: JobConfig) -> Check:
    """What a resolved job, or stage, that learns from rollouts holds out, and how much its success on that can say."""
    title, path = _("Held-out tasks"), "evaluate.share"
    if not course.evaluate.every:
        sentence = _("None: success will be measured on tasks that the run learns from.")
        hint = _("Set a held-out share and how often it is evaluated; 0.1 and a fifth of the steps are usual.")
        return Check(title, False, sentence, hint, path=path, remark=True)
    found, overlap = held_out_of(course), overlap_of_plan(project, course)
    off = _("To train on all tasks, set the held-out share and “Evaluate every” to 0.")
    if overlap.learned:
        sentence = _("%(learned)s: success on these tasks says little about others.") % {"learned": overlap.words}
        return Check(title, False, sentence[:1].upper() + sentence[1:], off, path="evaluate.data", remark=True)
    if found.points is None:
        return Check(title, True, _("How many tasks are held out is counted when the run begins."), off)
    known = _("A success of 50%% on them is known within ±%(points)d points.") % {"points": found.points}
    sentence = f"{_held_sentence(course, found)} {known}"
    if overlap.unknown:
        sentence = f"{sentence} {overlap.words[:1].upper()}{overlap.words[1:]}."
    few = (found.played or 0) < FEW_TASKS
    return Check(title, not few, sentence, off, path=path if few else "", remark=few)


def _held_sentence(course: JobConfig, found: HeldOut) -> str:
    held, played = found.held or 0, found.played or 0
    values = {"held": held, "played": played, "of": held + (found.trained or 0), "every": course.evaluate.every}
    if course.evaluate.data:
        return _("%(played)d tasks of another dataset are played every %(every)d steps.") % values
    if played < held:
        sentence = _("%(held)d of %(of)d tasks are not trained on; %(played)d are played every %(every)d steps.")
        return sentence % values
    return _("%(held)d of %(of)d tasks are not trained on, and are played every %(every)d steps.") % values


def part_check(config: JobConfig) -> Check:
    """An evaluation of a held-out share plays that part of its dataset alone."""
    found, values = held_out_of(config), {"share": f"{config.evaluate.share:g}"}
    if found.played is None or found.held is None or found.trained is None:
        sentence = _("Only the tasks that a held-out share of %(share)s holds out are played.") % values
    else:
        counts = {"played": found.played, "of": found.held + found.trained}
        sentence = _("%(played)d of %(of)d tasks are played, of those that a held-out share of %(share)s holds out.")
        sentence %= values | counts
    return Check(_("Tasks"), True, sentence, _("To play all tasks, set the held-out share to 0."))
