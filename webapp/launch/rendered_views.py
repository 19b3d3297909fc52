"""The page *Rendered*: what a model would see of a dataset, and what a run would learn of it."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST
from pydantic import ValidationError

from training.config import JobConfig, kind_in
from training.data import Rendered, RenderedRow, why_words
from training.errors import ConfigError
from training.limited import limited_child
from training.plain import number_in
from webapp.common.text import in_words
from webapp.engine.resolve import resolve
from webapp.launch.forms import reference_choices
from webapp.launch.preflight import child_environment, one_of_few
from webapp.people.teams.access import project_for
from webapp.people.teams.models import Project

# --- Rendered -------------------------------------------------------------------------------------------------------
# Rows as a model reads them, before a run: ``python -m training rendered`` in its own process, with a wall limit.

SHOWN = 4
"""Rows on a page."""
WALL_LIMIT_S = 60.0
MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class View:
    """What the page shows: rows and counts, or one sentence why not."""

    found: Rendered | None = None
    problem: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[tuple[int, str]] = field(default_factory=list)

    @property
    def percent(self) -> float:
        """Tokens that are learned, in percent of all."""
        return 100 * self.found.learned / self.found.tokens if self.found and self.found.tokens else 0.0


def rendered(project: Project, dataset: str, model: str, first: int) -> View:
    """The rows of a dataset from number ``first`` on, as ``model`` reads them; both are references of the project."""
    job = {"kind": "sft", "model": {"source": model}, "data": {"train": dataset}}
    try:
        config = resolve(project, JobConfig.model_validate(job)).config
    except ConfigError as exc:
        return View(problem=capfirst(in_words(exc.sentence)))
    except ValidationError:
        return View(problem=_("Choose a dataset and a model."))
    source = config.model.source
    if source != "starter" and not Path(source).is_dir():
        return View(problem=_("The files of this model are not here yet, so nothing can be rendered with it."))
    return _render_in_child(Path(config.data.train), source, first)


def _render_in_child(rows: Path, model: str, first: int) -> View:
    command = [sys.executable, "-m", "training", "rendered", str(rows), "--model", model]
    command += ["--first", str(first), "--count", str(SHOWN)]
    with one_of_few(WALL_LIMIT_S / 2) as free, tempfile.TemporaryFile(dir=settings.DATA_DIR) as err:
        if not free:
            return View(problem=_("Other checks are still running. Try again in a moment."))
        with limited_child(
            command, wall_s=WALL_LIMIT_S, env=child_environment({}), stderr=err, cwd=settings.BASE_DIR
        ) as child:
            printed = child.output(MAX_BYTES)
            in_time = child.wait()
        err.seek(0)
        said = err.read(2000).decode("utf-8", "replace").strip()
    if not in_time:
        return View(problem=_("Rendering took longer than %(s)g seconds.") % {"s": WALL_LIMIT_S})
    try:
        return _view_of_rendered(Rendered.model_validate_json(printed or b""))
    except ValidationError:
        return View(problem=said.splitlines()[-1] if said else _("The rows could not be rendered on this server."))


def _view_of_rendered(found: Rendered) -> View:
    rows = [
        {
            "item": row,
            "tokens": sum(len(part.tokens) for part in row.parts),
            "learned": _learned_tokens(row),
            "why": _reason_text(row),
        }
        for row in found.rows
    ]
    left_out = [(count, in_words(why_words(code, "sft.max_length"))) for code, count in found.left_out.items()]
    return View(found, rows=rows, left_out=left_out)


def _learned_tokens(row: RenderedRow) -> int:
    return sum(len(part.tokens) for part in row.parts if part.kind == "learned")


def _reason_text(row: RenderedRow) -> str:
    return in_words(why_words(row.why, "sft.max_length")) if row.why else ""


@login_required
@require_GET
def run_rendered(request: HttpRequest, slug: str) -> HttpResponse:
    """A dataset and a model to choose; the page asks for their rows by itself once both are chosen."""
    project = project_for(request.user, slug)
    dataset, model, first = _query_of(request)
    choices = reference_choices(project)
    query: dict[str, str | int] = {"dataset": dataset, "model": model, "first": first}
    context = {
        "project": project,
        "datasets": choices["data.train"],
        "models": [choice for choice in choices["model.source"] if kind_in(choice[0]) != "endpoint"],
        "dataset": dataset,
        "model": model,
        "query": urlencode(query),
    }
    return render(request, "runs/rendered.html", context)


@login_required
@require_GET
def run_rendered_rows(request: HttpRequest, slug: str) -> HttpResponse:
    """The rows themselves, which takes some seconds."""
    project = project_for(request.user, slug)
    dataset, model, first = _query_of(request)
    view = rendered(project, dataset, model, first)
    shown = {"view": view, "first": first, "last": first + SHOWN - 1, "next": first + SHOWN}
    before = max(1, first - SHOWN) if first > 1 else None
    context = {"project": project, "dataset": dataset, "model": model, "before": before, **shown}
    return render(request, "runs/_rendered.html", context)


@login_required
@require_POST
def run_rendered_of_form(request: HttpRequest, slug: str) -> HttpResponse:
    """From the form of a new run to the page of its dataset and model."""
    project = project_for(request.user, slug)
    chosen = {"dataset": request.POST.get("data.train", ""), "model": request.POST.get("model.source", "")}
    return redirect(f"{reverse('run-rendered', args=[project.slug])}?{urlencode(chosen)}")


def _query_of(request: HttpRequest) -> tuple[str, str, int]:
    """The dataset, the model, and the number of the first row."""
    number = number_in(request.GET.get("first", ""), 8) or 1
    return request.GET.get("dataset", ""), request.GET.get("model", ""), number
