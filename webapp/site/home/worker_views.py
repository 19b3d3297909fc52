"""The page of workers."""

from __future__ import annotations

from typing import cast

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from webapp.engine.room import fault_text
from webapp.people.teams.models import User
from webapp.site.home.clock import clock_age, is_late
from webapp.site.home.places import all_loads
from webapp.site.home.workers import worker_lines


@login_required
@require_GET
def worker_list(request: HttpRequest) -> HttpResponse:
    """The workers: members see names and states, administrators also machines, processes and versions."""
    user = cast(User, request.user)
    age_s = clock_age()
    shown = {"lines": worker_lines(user), "all": user.is_superuser, "loads": all_loads(), "disk_fault": fault_text()}
    return render(request, "workers/list.html", shown | {"clock_age_s": age_s, "clock_late": is_late(age_s)})
