"""Who used the devices, as a page and as CSV, and the limits of each project: devices, storage, endpoints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_POST

from training.plain import number_in
from webapp.common.pools import TRAIN
from webapp.common.serving import CsvResponse, csv_lines
from webapp.endpoints.spending import endpoint_days
from webapp.people.teams.access import administrator
from webapp.people.teams.models import User
from webapp.runs.records.limits import Which, limit_change, limits_for
from webapp.runs.records.usage import MOST_DAYS, USUAL, Usage, Used, usage_of

DAYS = (7, 30, 90)
LIMITS: tuple[Which, ...] = ("devices", "storage_gib")


class Line(NamedTuple):
    """A person in a project: hours with a device, their share of all, hours of runs that ask an endpoint, runs."""

    project: str
    person: str
    hours: float
    share: float | None
    endpoint_hours: float
    runs: int


def _lines_of(usage: Usage) -> list[Line]:
    by_pair: dict[tuple[str, str, str], list[Used]] = defaultdict(list)
    for line in usage.sums:
        by_pair[line.slug, line.project, line.person].append(line)
    lines = []
    for (_slug, project, person), parts in by_pair.items():
        hours = sum(part.hours for part in parts if part.pool == TRAIN)
        share = hours / usage.device_hours if usage.device_hours else None
        others = sum(part.hours for part in parts if part.pool != TRAIN)
        lines.append(Line(project, person, hours, share, others, sum(part.runs for part in parts)))
    return sorted(lines, key=lambda line: (-line.hours, -line.endpoint_hours, line.project, line.person))


def _headline(usage: Usage, lines: Sequence[Line]) -> str:
    """The answer in one sentence."""
    values: dict[str, Any] = {"days": usage.days, "hours": f"{usage.device_hours:,.1f}"}
    used = [line for line in lines if line.hours]
    if not used:
        return _("No run has used a device in the last %(days)d days.") % values
    values |= {"n": len({line.person for line in used}), "most": used[0].person or _("a person who is gone")}
    values |= {"project": used[0].project, "share": f"{100 * (used[0].share or 0.0):.0f}%"}
    text = ngettext(
        "%(n)d person used %(hours)s device hours in the last %(days)d days, %(share)s of them for %(project)s.",
        "%(n)d people used %(hours)s device hours in the last %(days)d days; %(most)s used %(share)s of them for "
        "%(project)s.",
        values["n"],
    )
    return text % values


def _asked_days(request: HttpRequest) -> int:
    asked = number_in(request.GET.get("days", ""), 4)
    return asked if asked is not None and 1 <= asked <= MOST_DAYS else USUAL


@login_required
@require_GET
def usage_page(request: HttpRequest) -> HttpResponse:
    """Device hours by person and project, and by day."""
    usage = usage_of(cast(User, request.user), _asked_days(request))
    lines, by_day = _lines_of(usage), usage.by_day
    limits = limits_for(cast(User, request.user))
    days = endpoint_days([limit.project.pk for limit in limits])
    context = {
        "usage": usage,
        "lines": lines,
        "headline": _headline(usage, lines),
        "by_day": by_day,
        "most": max(hours for _day, hours in by_day),
        "endpoints": any(line.endpoint_hours for line in lines),
        "limits": [(limit, days.get(limit.project.pk, [])) for limit in limits],
        "may_limit": cast(User, request.user).is_superuser,
        "choices": [(days, days == usage.days) for days in DAYS],
    }
    return render(request, "workers/usage.html", context)


@login_required
@require_POST
def limit_set(request: HttpRequest) -> HttpResponse:
    """Limit the devices that the runs of a project have at once, or what it stores; an empty field is no limit
    (administrators)."""
    user = administrator(request)
    try:
        limits = {name: _limit_sent(request.POST[name].strip()) for name in LIMITS if name in request.POST}
        limit_change(slug=request.POST.get("project", ""), limits=limits, user=user)
    except ValidationError as exc:
        messages.error(request, exc.messages[0])
    return redirect(f"{reverse('device-usage')}#limits")


def _limit_sent(text: str) -> int | None:
    """A limit as it was typed. Raises ``ValidationError``."""
    number = number_in(text, 9)
    if text and number is None:
        raise ValidationError(_("“%s” is no whole number.") % text[:20])
    return number


@login_required
@require_GET
def usage_csv(request: HttpRequest) -> CsvResponse:
    """The same as a table: a line for each day, project, person and pool."""
    usage = usage_of(cast(User, request.user), _asked_days(request))
    header = ["day", "project", "slug", "person", "pool", "hours", "runs"]
    rows = ((*line[:5], round(line.hours, 4), line.runs) for line in usage.items)
    return CsvResponse(csv_lines(header, rows), "usage.csv")
