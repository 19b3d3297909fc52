"""What workers do for the reward lab."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from webapp.common.work import Kind, register
from webapp.rewards.lab.building import set_build, set_failed
from webapp.rewards.models import RolloutSet

TOO_LONG = gettext_noop("Reading the rollouts took too long. Choose fewer steps.")

register(Kind(RolloutSet, set_build, set_failed, too_long=TOO_LONG))
