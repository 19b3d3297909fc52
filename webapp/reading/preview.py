"""The card about a rollout that a link to it shows while the pointer rests on the link."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from webapp.common.words import failure
from webapp.reading.groups import expected_answers
from webapp.reading.inspector.causes import UNKNOWN, cause_title, of_failed, whole_cause
from webapp.reading.parts import config_for, parts_of, spec_of
from webapp.reading.selectors import own_rollout
from webapp.runs.rollouts.models import Rollout
from webapp.runs.rollouts.selectors import last_words


def zero_parts(rollout: Rollout) -> list[str]:
    """The components that gave a rollout nothing; a part that is not known is none of them."""
    found = parts_of(rollout, spec_of(rollout.run, config_for(rollout)))
    return [part.title for part in found if part.value == 0]


@login_required
@require_GET
def rollout_preview(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The card, as a part of a page, in four queries."""
    _project, rollout = own_rollout(request, slug, pk, cause=of_failed())
    words, expected = last_words([rollout.pk]).get(rollout.pk, ""), expected_answers([rollout]).get(rollout.pk, "")
    cause = whole_cause(getattr(rollout, "cause", None), words, expected)
    context = {
        "rollout": rollout,
        "run": rollout.run,
        "words": words,
        "expected": expected,
        "why": cause_title(cause) if cause not in ("", UNKNOWN) else "",
        "nothing_for": zero_parts(rollout),
        "failure": failure(rollout.error),
    }
    return render(request, "reading/_preview.html", context)
