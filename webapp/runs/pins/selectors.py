"""Pinned charts as the project's page and the API show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _

from webapp.common.strings import metric_titles
from webapp.people.teams.models import Project
from webapp.runs.config import component_titles, config_of, scored_components, stack_weights
from webapp.runs.pins.models import PinnedChart
from webapp.runs.states import TERMINAL


def pins_of(project: Project) -> QuerySet[PinnedChart]:
    """The pinned charts of a project, oldest first; those of deleted runs are gone."""
    return PinnedChart.objects.filter(project=project, run__removed_at=None).select_related("run", "created_by")


def pin_view(pin: PinnedChart, titles: Mapping[str, str]) -> dict[str, Any]:
    """What the page's script draws. The components in the order of the spec, which gives their colours."""
    slug = pin.project.slug
    return {
        "id": str(pin.pk),
        "run": str(pin.run_id),
        "name": pin.run.name,
        "url": f"{reverse('run-detail', args=[slug, pin.run_id])}",
        "csv": reverse("run-curves-csv", args=[slug, pin.run_id]),
        "key": pin.key,
        "title": titles.get(f"metric.{pin.key}", pin.key),
        "names": pin.names,
        "view": pin.view,
        "components": component_titles(scored_components(pin.run)),
        "weights": stack_weights(config_of(pin.run)),
        "ended": pin.run.state in TERMINAL,
        "pinned_by": pin.created_by.username if pin.created_by else _("a former member"),
    }


def pins_shown(project: Project) -> list[dict[str, Any]]:
    """All pinned charts of a project."""
    found = list(pins_of(project))
    for pin in found:
        pin.project = pin.run.project = project
    titles = metric_titles() if found else {}
    return [pin_view(pin, titles) for pin in found]
