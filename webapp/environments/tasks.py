"""What workers do for environments."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from webapp.common.work import Kind, register
from webapp.environments.models import DatasetOrder, OrderState
from webapp.environments.orders import order_failed, order_run

TOO_LONG, FEWER = gettext_noop("Writing the dataset took too long."), gettext_noop("Ask for fewer rows.")

register(Kind(DatasetOrder, order_run, order_failed, too_long=TOO_LONG, hint=FEWER, at_work=OrderState.WRITING))
