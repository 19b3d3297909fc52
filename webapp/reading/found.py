"""The view that a rollout was found in: the inspector's parameters, carried by the addresses of what was found.

``found`` is the query string of the view, ``in=project`` says that it is one of several runs. Without ``found`` a
rollout was opened by its address alone.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest, QueryDict

from webapp.people.teams.models import Project
from webapp.reading.inspector.filters import Filters, filters_of
from webapp.reading.inspector.finding import View
from webapp.reading.inspector.scope import address_of, carried, project_scope, run_scope
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

QUERY_MAX = 4_000


class Found(NamedTuple):
    """Where a rollout was found: under which filters, in one ``run`` or in several of the project."""

    project: Project
    run: Run | None
    filters: Filters

    @property
    def list_url(self) -> str:
        """The page of the view."""
        return f"{address_of(self.project, self.run)}?{urlencode(self.filters.pairs())}"

    @property
    def carried(self) -> str:
        """The query string for the addresses of the view's other rollouts."""
        return carried(self.run, self.filters.pairs())

    def beside(self, rollout: Rollout) -> tuple[Rollout | None, Rollout | None]:
        """The rollouts before and after it in the view."""
        if self.run is not None:
            scope = run_scope(self.project, self.run)
        else:
            scope = project_scope(self.project, self.filters.chosen.get("run", ()))
        return View(scope, self.filters).beside(rollout)


def found_of(request: HttpRequest, project: Project, rollout: Rollout) -> Found | None:
    """The view that the address names; ``None`` where it names none."""
    raw = request.GET.get("found")
    if raw is None:
        return None
    run = None if request.GET.get("in") == "project" else rollout.run
    return Found(project, run, filters_of(QueryDict(raw[:QUERY_MAX])))
