"""The summary of an ended run: for the head of its page, the API and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from django.urls import reverse

from webapp.engine.services import GoingOn, whole_checkpoints
from webapp.results.model_pages.page import RunModel, model_of_run
from webapp.results.summary.advice import Advice, Seen, advice_of
from webapp.results.summary.facts import (
    Best,
    Cost,
    Gain,
    HeldOut,
    best_of,
    cost_of,
    gains_of,
    held_out_of,
    taken_by,
)
from webapp.runs.advisories.selectors import AdvisoryView, advisories_of
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.states import TERMINAL, RunState

ENDED = frozenset({*TERMINAL, RunState.PAUSED})


class Summary(NamedTuple):
    """The results of a run. ``advisories`` are the open ones, the gravest first."""

    gains: list[Gain]
    best: Best | None
    held_out: HeldOut | None
    cost: Cost
    made: RunModel | None
    advisories: Sequence[AdvisoryView]
    advice: list[Advice]


def summary_of(
    run: Run,
    *,
    editor: bool,
    made: RunModel | None,
    going_on: GoingOn,
    advisories: Sequence[AdvisoryView],
    checkpoints: Sequence[Checkpoint],
) -> Summary:
    """The summary, from rows that a page has read anyway, with one more query."""
    ways, spent = taken_by(run)
    best = best_of(run, ways, checkpoints)
    held_out = held_out_of(run, made.score if made else None)
    still = [item for item in advisories if item.open]
    new = reverse("run-new", args=[run.project.slug])
    known = editor and not run.imported_from  # else its config is not known
    seen = Seen(
        run=run,
        ways=ways,
        best=best,
        held_out=held_out,
        advisories=still,
        clone=f"{new}?{urlencode({'from': run.pk})}" if known else "",
        branch=f"{new}?{urlencode({'resume': run.pk})}" if known and going_on.branch_point is not None else "",
        model=_model_reference(run, made),
        evaluate=made.evaluate_url if made is not None and editor else "",
    )
    return Summary(gains_of(ways), best, held_out, cost_of(run, spent), made, still, advice_of(seen))


def _model_reference(run: Run, made: RunModel | None) -> str:
    if made is None:
        return ""
    return made.model.reference if made.model is not None else run.reference


def summary_read(run: Run, *, editor: bool) -> Summary:
    """The summary of a run, when nothing else of it was read before."""
    points = whole_checkpoints(run)
    return summary_of(
        run,
        editor=editor,
        made=model_of_run(run, points),
        going_on=GoingOn(run, points),
        advisories=advisories_of(run, points),
        checkpoints=points,
    )
