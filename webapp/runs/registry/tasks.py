"""What workers do for models."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from webapp.common.work import Kind, register
from webapp.runs.registry.models import ModelPush, PushState
from webapp.runs.registry.pushing import push_failed, push_run

TOO_LONG = gettext_noop("Sending the files took too long.")
AGAIN = gettext_noop("Try again: files that arrived are not sent again.")

register(Kind(ModelPush, push_run, push_failed, too_long=TOO_LONG, hint=AGAIN, at_work=PushState.SENDING))
