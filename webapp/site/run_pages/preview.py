"""The card about a run that a link to it shows while the pointer rests on the link."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from training.evaluation import share_interval
from webapp.common.text import finite, percent, translated
from webapp.common.words import failure
from webapp.results.summary import SUCCESS, rollouts_of_step
from webapp.runs.advisories.selectors import diagnosis_view
from webapp.runs.metrics.selectors import newest_values
from webapp.runs.models import Run
from webapp.runs.records.selectors import own_run
from webapp.site.run_pages.ended import certainty_text

SPARK_VALUES = 48


class Share(NamedTuple):
    """A figure of success. ``about``: how certain it is; empty where that is not known."""

    title: str
    value: str
    about: str
    trend: list[float | None]


def success_of(run: Run) -> list[Share]:
    """What is known of a run's success: on held-out tasks, then on the tasks that it plays."""
    return [*_held_out(run), *_played(run)]


def _held_out(run: Run) -> Iterator[Share]:
    known = run.health.get("held_out") or {}
    found = known.get("best") or known.get("newest")
    if found is not None:
        about = certainty_text(known.get("tasks") or 0, found.get("low"), found.get("high"), tasks=True)
        yield Share(_("Held-out success"), percent(found["success"]), about, [])


def _played(run: Run) -> Iterator[Share]:
    """Of all tasks where an evaluation has ended, else of the newest step."""
    whole = ((run.evaluation or {}).get("figures") or {}).get("success") or {}
    if whole.get("value") is not None:
        about = certainty_text(whole.get("tasks") or 0, whole.get("low"), whole.get("high"), tasks=True)
        yield Share(_("Success"), percent(whole["value"]), about, [])
        return
    share = finite(run.success)
    if share is not None:
        trend = newest_values(run, [SUCCESS], SPARK_VALUES).get(SUCCESS, [])
        yield Share(_("Success"), percent(share), _certainty_of_step(run, share), trend)


def _certainty_of_step(run: Run, share: float) -> str:
    tries = rollouts_of_step(run)
    if not tries or not 0 <= share <= 1:
        return ""
    return certainty_text(tries, *share_interval(round(share * tries), tries), tasks=False)


@login_required
@require_GET
def run_preview(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The card, as a part of a page."""
    _project, run = own_run(request, slug, pk)
    context = {
        "run": run,
        "kind": translated(run.imported_from) or run.kind.upper(),
        "diagnosis": diagnosis_view(run),
        "failure": failure(run.error),
        "shares": success_of(run),
    }
    return render(request, "runs/_preview.html", context)
