"""What a job in the form will do and take: its rollouts, its tasks, what it holds out, its time and its disk.

The time is that of the newest run of the project with the same method, environment and base model, for as many steps
and scaled to as many rollouts; without such a run it is not known.
"""

from __future__ import annotations

from statistics import fmean, quantiles
from typing import NamedTuple

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.defaultfilters import filesizeformat
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from training.config import JobConfig
from training.errors import ConfigError
from webapp.common.text import NOTHING, duration, figure
from webapp.engine.resolve import Resolved, base_meant
from webapp.launch.estimates import disk_forecast
from webapp.launch.forms import config_of
from webapp.launch.held_out import HeldOut, held_out_of, resolved_or_none
from webapp.launch.memory_views import Problems, job_of
from webapp.people.teams.access import project_for
from webapp.people.teams.models import Project
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.records.queue import STEPS_MEASURED
from webapp.runs.records.selectors import STEP_TIME
from webapp.runs.states import RunState

LOOKED_AT_RUNS = 8
LEAST_STEPS = 2
NOT_CHOSEN_YET = frozenset({"data", "environment", "rewards", "evaluate"})
"""Groups of the form that may be incomplete."""


class Line(NamedTuple):
    """One line of the plan: its title, its figure, and what the figure is made of."""

    title: str
    figure: str
    note: str = ""


class Pace(NamedTuple):
    """Seconds of a step of ``run``, and between which eight of ten of its last ``steps`` steps took."""

    run: Run
    seconds: float
    low: float
    high: float
    steps: int


def plan_of(project: Project, config: JobConfig, known: Resolved | None = None) -> list[Line]:
    """The plan of a job; lines that need data or a model that is not chosen yet are left out. ``known``: what it means,
    where that is known already."""
    meant = known or resolved_or_none(project, config)
    resolved = meant.config if meant is not None else None
    lines = [_steps_line(config)]
    if resolved is not None and config.method.learns_from == "rollouts":
        lines += _task_lines(config, resolved)
    lines.append(_time_line(project, config))
    found = disk_forecast(resolved) if resolved is not None else None
    if found is not None:
        lines.append(Line(_("Disk"), filesizeformat(found.total)))
    return lines


def _count(number: int) -> str:
    return number_format(number, use_l10n=True, force_grouping=True)


def _steps_line(config: JobConfig) -> Line:
    steps = config.run.max_steps
    if not config.method.plays:
        return Line(_("Steps"), _count(steps))
    if config.method.evaluates:
        tries = ngettext("%(n)s try of each task", "%(n)s tries of each task", config.group_size)
        return Line(_("Rollouts"), tries % {"n": config.group_size})
    tasks, group = config.rollout.prompts_per_step, config.group_size
    factors = (
        ngettext("%(n)s step", "%(n)s steps", steps) % {"n": _count(steps)},
        ngettext("%(n)s task", "%(n)s tasks", tasks) % {"n": _count(tasks)},
        ngettext("%(n)s try", "%(n)s tries", group) % {"n": _count(group)},
    )
    return Line(_("Rollouts"), _count(steps * config.rollouts_per_step), " × ".join(factors))


def _task_lines(config: JobConfig, resolved: JobConfig) -> list[Line]:
    """The tasks that are trained on and those that are held out; none for stages or parts, which have their own."""
    if resolved.stages or resolved.mix.parts:
        return []
    held, lines = held_out_of(resolved), []
    if held.trained:
        visits = config.run.max_steps * config.rollout.prompts_per_step / held.trained
        lines.append(Line(_("Tasks"), _count(held.trained), _("each trained on %(n)s times") % {"n": figure(visits)}))
    return [*lines, _held_out_line(config, held)]


def _held_out_line(config: JobConfig, held: HeldOut) -> Line:
    title = _("Held out")
    if not config.evaluate.every:
        return Line(title, _("nothing"), _("success is measured on tasks that it learns from"))
    if held.played is None or held.points is None:
        return Line(title, NOTHING, _("counted when the run begins"))
    times = config.run.max_steps // config.evaluate.every + 1 + bool(config.run.max_steps % config.evaluate.every)
    rollouts = times * held.played * config.evaluate.samples
    values = {"times": times, "rollouts": _count(rollouts), "points": held.points}
    note = _("played %(times)s times (%(rollouts)s rollouts more), success within ±%(points)s points") % values
    return Line(title, ngettext("%(n)s task", "%(n)s tasks", held.played) % {"n": _count(held.played)}, note)


def _time_line(project: Project, config: JobConfig) -> Line:
    title, found = _("Time on its device"), _pace_of(project, config)
    if found is None:
        return Line(title, _("not known"), _("no run like it was made in this project yet"))
    steps = config.run.max_steps
    low, high = duration(steps * found.low), duration(steps * found.high)
    values = {"name": found.run.name, "n": found.steps, "seconds": duration(found.seconds)}
    note = _("%(seconds)s a step, as the last %(n)s steps of “%(name)s”; without evaluations") % values
    about = duration(steps * found.seconds)
    if low != high:
        about = _("%(about)s (%(low)s to %(high)s)") % {"about": about, "low": low, "high": high}
    return Line(title, about, note)


def _pace_of(project: Project, config: JobConfig) -> Pace | None:
    """The pace of the newest run like the job, scaled to as many rollouts a step."""
    rows = Run.objects.filter(project=project, kind=config.kind, imported=False, attempt__gt=0)
    if config.method.plays:
        rows = rows.filter(config__environment__name=config.environment.name)
    states = [RunState.SUCCEEDED, RunState.CANCELLED, RunState.PAUSED, RunState.RUNNING]
    base = _base_of(project, config)
    for run in rows.filter(state__in=states).order_by("-created_at")[:LOOKED_AT_RUNS] if base else ():
        other = config_of(run)
        if _base_of(project, other) == base:
            measured = _steps_of(run)
            if len(measured) >= LEAST_STEPS:
                return _scaled(run, measured, config.rollouts_per_step / max(1, other.rollouts_per_step))
    return None


def _base_of(project: Project, config: JobConfig) -> str:
    try:
        return base_meant(project, config)
    except ConfigError:
        return ""


def _steps_of(run: Run) -> list[float]:
    rows = MetricPoint.objects.filter(run=run, name=STEP_TIME, value__gt=0, value__lt=1e9)
    return list(rows.order_by("-step", "-attempt").values_list("value", flat=True)[:STEPS_MEASURED])


def _scaled(run: Run, measured: list[float], scale: float) -> Pace:
    tenths = quantiles(measured, n=10, method="inclusive")
    return Pace(run, scale * fmean(measured), scale * tenths[0], scale * tenths[-1], len(measured))


@login_required
@require_POST
def run_plan(request: HttpRequest, slug: str) -> HttpResponse:
    """The plan of the job in a form, as a part of its page."""
    project = project_for(request.user, slug)
    try:
        lines, problems = plan_of(project, *job_of(request.POST, project, NOT_CHOSEN_YET)), []
    except Problems as exc:
        lines, problems = [], exc.found
    return render(request, "runs/_plan.html", {"lines": lines, "problems": problems})
