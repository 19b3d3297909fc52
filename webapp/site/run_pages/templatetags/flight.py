"""The dots of the rollouts in flight, drawn here and not by a template: a step has up to hundreds of them."""

from __future__ import annotations

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from webapp.runs.rollouts.models import RolloutStatus
from webapp.site.run_pages.flight import Box, Dot

register = template.Library()
_BOX = '<div id="{}" class="flights" data-size="{}" data-shape="{}">{}</div>'
_GROUP = '<div class="flight-group" role="group" aria-label="{}">{}</div>'
_WAITING = (
    '<a class="flight-cell" tabindex="-1" data-cell="{0}" data-status="{1}" role="img" aria-label="{2}"'
    ' title="{2}">{3}</a>'
)
_PLAYED = (
    '<a class="flight-cell" tabindex="-1" data-cell="{0}" data-status="{1}" data-rollout="{4}" data-step="{5}"{6}{7}'
    ' href="?tab=rollouts&amp;step={5}&amp;rollout={4}" aria-label="{2}" title="{2}">{3}</a>'
)
_NOTHING = SafeString("")


@register.simple_tag
def flight_box(box: Box, element_id: str) -> SafeString:
    """Groups of dots; ``static/js/lib/flight.js`` draws the same."""
    groups = (
        (group.name, format_html_join("", "{}", ((_dot_html(dot),) for dot in group.dots))) for group in box.groups
    )
    return format_html(_BOX, element_id, box.size, box.shape, format_html_join("\n", _GROUP, groups))


def _dot_html(dot: Dot) -> SafeString:
    rollout, shown = dot.rollout, (dot.key, dot.status, dot.words, dot.mark)
    if rollout is None:
        return format_html(_WAITING, *shown)
    ended = rollout.status != RolloutStatus.RUNNING
    outcome = format_html(' data-outcome="{}"', rollout.outcome) if ended else _NOTHING
    reward = format_html(' data-reward="{}"', dot.reward_step) if dot.reward_step is not None else _NOTHING
    return format_html(_PLAYED, *shown, rollout.pk, rollout.step, outcome, reward)
