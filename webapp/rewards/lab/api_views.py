"""The lab's two JSON answers: a set scored by a spec, and one rollout with what earned its reward."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_POST


@login_required
@require_POST
def lab_score(request: HttpRequest, slug: str, pk: UUID) -> JsonResponse:
    """Score a set by the posted components; nothing is stored, so viewers may too."""
    raise NotImplementedError


@login_required
@require_POST
def lab_rollout(request: HttpRequest, slug: str, pk: UUID, rollout: UUID) -> JsonResponse:
    """One rollout of a set with its messages, parts and the spans that earned them."""
    raise NotImplementedError
