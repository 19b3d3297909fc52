"""The newest text of a run next to its rollouts in flight: the last words of the rollout that ended last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from webapp.reading.groups import expected_answers
from webapp.runs.models import Run
from webapp.runs.records.selectors import own_run
from webapp.runs.rollouts.models import Rollout, RolloutStatus
from webapp.runs.rollouts.said import last_words

ENDED = (RolloutStatus.COMPLETED, RolloutStatus.TRUNCATED)


class Said(NamedTuple):
    """What a rollout said last. ``words`` are empty where its model wrote only calls; ``expected`` where its task names
    no answer. ``flying``: none has ended yet, and this one is the furthest."""

    rollout: Rollout
    words: str
    expected: str
    flying: bool


def newest_said(run: Run) -> Said | None:
    """The newest text; ``None`` before any rollout has a turn of its model."""
    rollout = next(_newest(run), None)
    if rollout is None:
        return None
    rollout.run = run  # else it would be read again
    flying = rollout.status == RolloutStatus.RUNNING
    words, expected = last_words([rollout.pk]), expected_answers([rollout])
    return Said(rollout, words.get(rollout.pk, ""), expected.get(rollout.pk, ""), flying)


def _newest(run: Run) -> Iterator[Rollout]:
    """The rollout that ended last; while none has ended, the one in flight with the most turns."""
    played: QuerySet[Rollout] = Rollout.objects.filter(run=run, held_out=False)
    yield from played.filter(status__in=ENDED).order_by("-step", F("finished_at").desc(nulls_last=True), "-seq")[:1]
    yield from played.filter(status=RolloutStatus.RUNNING, turns__gt=0).order_by("-step", "-turns", "group", "index")[
        :1
    ]


@login_required
@require_GET
def run_said(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The newest text again, when an open page heard that another rollout has ended."""
    project, run = own_run(request, slug, pk)
    return render(request, "runs/_said.html", {"project": project, "run": run, "said": newest_said(run)})
