"""The curves of a chart as a table: every point that counts, none thinned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest
from django.utils.text import slugify
from django.views.decorators.http import require_GET

from webapp.common.csv_text import CsvResponse, csv_lines
from webapp.runs.metrics.selectors import curves, metric_names
from webapp.runs.models import Run
from webapp.runs.records.access import own_run

NAME_MAX = 120
EVERY = 2**31


@login_required
@require_GET
def run_curves_csv(request: HttpRequest, slug: str, pk: UUID) -> CsvResponse:
    """A row for each step, a column for each metric that is named (all, where none is), an empty cell where there is no
    finite figure."""
    _project, run = own_run(request, slug, pk)
    asked = list(dict.fromkeys(request.GET.getlist("name"))) or metric_names(run)
    names = [name for name in asked if 0 < len(name) <= NAME_MAX and name.isprintable()]
    if asked and not names:
        raise Http404
    return CsvResponse(
        csv_lines(["step", *names], _table_rows(run, names)), f"{slugify(run.name) or run.pk}-curves.csv"
    )


def _table_rows(run: Run, names: Sequence[str]) -> Iterator[tuple[int | float | None, ...]]:
    found = curves(run, names, EVERY)
    known = [
        dict(zip(found[name]["steps"], found[name]["values"], strict=True)) if name in found else {} for name in names
    ]
    for step in sorted(set().union(*known)):
        yield (step, *(each.get(step) for each in known))
