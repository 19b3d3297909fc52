"""The switches that an administrator sets for the whole installation."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, SiteSwitch, User

CUSTOM_REWARDS = "custom_rewards"


def custom_rewards_on() -> bool:
    """Whether members may write rewards in Python: the operator allowed it, and an administrator switched it on."""
    return bool(settings.CUSTOM_REWARDS) and SiteSwitch.objects.filter(name=CUSTOM_REWARDS, on=True).exists()


@transaction.atomic
def custom_rewards_switch(*, by: User, on: bool) -> None:
    """Switch custom rewards, with a row in the audit. Raises ``ValidationError`` where the operator forbids it."""
    if on and not settings.CUSTOM_REWARDS:
        raise ValidationError(_("The operator of this installation has not allowed custom rewards."))
    SiteSwitch.objects.update_or_create(name=CUSTOM_REWARDS, defaults={"on": on})
    audit(AuditAction.CUSTOM_ON if on else AuditAction.CUSTOM_OFF, by=by)
