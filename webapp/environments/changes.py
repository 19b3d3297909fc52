"""Changing the options and limits of an environment's servers."""

from __future__ import annotations

import logging
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from webapp.environments.models import Environment
from webapp.environments.services import arguments_of, environment_restart, require_unused
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction

logger = logging.getLogger(__name__)


def environment_change(
    *, environment: Environment, arguments: dict[str, Any], slots: int, cpus: float, memory_mb: int, pids: int
) -> bool:
    """Keep other options and limits, and restart every replica with them. Returns whether anything changed.

    Refused while an open run plays on it: its episodes would end, and its tasks might mean something else afterwards.
    Raises ``ValidationError`` by field.
    """
    if not environment.launched:
        raise ValidationError(_("This server was started elsewhere, so it cannot be started or stopped here."))
    values = {
        "arguments": arguments_of(environment, arguments),
        "slots": slots,
        "cpus": cpus,
        "memory_mb": memory_mb,
        "pids": pids,
    }
    if all(getattr(environment, name) == value for name, value in values.items()):
        return False
    require_unused(environment)
    with transaction.atomic():
        # What another server proved is no proof of this one.
        Environment.objects.filter(pk=environment.pk).update(**values, validation=None)
        audit(AuditAction.ENVIRONMENT_CHANGED, environment)
        environment_restart(environment=environment)
    logger.info("environment changed", extra={"environment_id": environment.pk})
    environment.refresh_from_db()
    return True
