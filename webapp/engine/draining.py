"""Draining a host: its workers finish what they do and take nothing new (``webapp/common/workers/beating.py``)."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from webapp.common.workers.models import Drain, Worker, host_of
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, User


def drain_change(*, host: str, user: User, on: bool) -> bool:
    """Have the workers of a host take nothing new, or work again; whether that changed anything.

    Raises ``ValidationError`` for a host to drain that no worker reported from.
    """
    with transaction.atomic():
        if not on:
            changed = bool(Drain.objects.filter(host=host).delete()[0])
        elif not any(host_of(name) == host for name in Worker.objects.values_list("name", flat=True)):
            raise ValidationError(_("No worker has reported from the host “%s”.") % host[:120])
        else:
            _drain, changed = Drain.objects.get_or_create(host=host, defaults={"by": user.username})
        if changed:
            audit(AuditAction.HOST_DRAINED if on else AuditAction.HOST_UNDRAINED, by=user, subject=host)
    return changed
