"""Pinning charts to a project's page, and taking them off."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.pins.models import PinnedChart

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
