"""Pinning charts to a project's page, and taking them off."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _

from webapp.common.strings import metric_titles
from webapp.people.teams.models import Project, User
from webapp.runs.config import component_titles, config_of, scored_components, stack_weights
from webapp.runs.models import Run
from webapp.runs.pins.models import PinnedChart
from webapp.runs.states import TERMINAL

logger = logging.getLogger(__name__)
MOST = 12  # on one page


def chart_pin(*, run: Run, key: str, names: Sequence[str], view: dict[str, Any], user: User | None) -> PinnedChart:
    """Pin a chart; one that is pinned already takes the new view. Raises ``ValidationError`` where the page is full."""
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=run.project_id)  # two at once must not pass the limit together
        pinned = PinnedChart.objects.filter(project=run.project_id, run__removed_at=None)
        if pinned.count() >= MOST and not pinned.filter(run=run, key=key).exists():
            raise ValidationError(
                _("The project's page has %(most)d pinned charts already. Unpin one there first.") % {"most": MOST}
            )
        made, _new = PinnedChart.objects.update_or_create(
            run=run,
            key=key,
            defaults={"names": list(names), "view": view},
            create_defaults={"project_id": run.project_id, "names": list(names), "view": view, "created_by": user},
        )
    logger.info("chart pinned", extra={"pin_id": made.pk, "run_id": run.pk})
    return made


def chart_unpin(*, pin: PinnedChart) -> None:
    """Take a chart off the project's page."""
    pin.delete()


# --- Selectors ------------------------------------------------------------------------------------------------------
# Pinned charts as the project's page and the API show them.


def pins_of(project: Project) -> QuerySet[PinnedChart]:
    """The pinned charts of a project, oldest first; those of deleted runs are gone."""
    return PinnedChart.objects.filter(project=project, run__removed_at=None).select_related("run", "created_by")


def pin_view(pin: PinnedChart, titles: Mapping[str, str]) -> dict[str, Any]:
    """The data that the page's script draws. The components in the order of the spec, which gives their colours."""
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
