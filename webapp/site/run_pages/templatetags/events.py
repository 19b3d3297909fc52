"""Events of a run in words."""

from __future__ import annotations

from django import template
from django.utils.translation import gettext_noop as _

from webapp.common.text import translated
from webapp.site.run_pages.page import event_words

register = template.Library()


KINDS = {
    "state": _("state"),
    "phase": _("phase"),
    "attempt": _("attempt"),
    "log": _("log"),
    "warning": _("warning"),
    "held": _("wait"),
    "update_skipped": _("skipped update"),
    "sampler_checked": _("sampler check"),
    "resumed": _("resume"),
    "checkpoints_removed": _("checkpoints"),
    "tasks_held_out": _("held-out tasks"),
    "held_out_evaluated": _("evaluation"),
    "stage_started": _("stage"),
    "rollout_order": _("rollout"),
}
PHASES = {
    "checking": _("being checked"),
    "preparing": _("preparing"),
    "generating": _("generating"),
    "environment": _("environment"),
    "scoring": _("scoring"),
    "training": _("training"),
    "saving": _("saving"),
    "evaluating": _("evaluating held-out tasks"),
}


@register.filter
def event_kind(kind: str) -> str:
    """The kind's name."""
    return translated(KINDS[kind]) if kind in KINDS else kind


@register.filter
def phase_word(phase: str) -> str:
    """The phase of a run inside its state."""
    return translated(PHASES[phase]) if phase in PHASES else phase


register.filter("event_words", event_words)
