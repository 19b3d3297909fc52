"""Taking a pinned chart off the project's page."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role
from webapp.runs.pins.models import PinnedChart
from webapp.runs.pins.services import chart_unpin


@login_required
@require_POST
def pin_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Unpin a chart; its run keeps it."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    chart_unpin(pin=object_for(request.user, PinnedChart, pk, need=Role.EDITOR, project=project))
    messages.success(request, _("The chart is no longer pinned. It stays on its run's page."))
    return redirect("project-page", slug=slug)
