"""The saved comparisons of a project, on the page where comparisons begin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template

from webapp.evaluation.sharing.services import saved_lines

register = template.Library()
SHOWN = 5


@register.inclusion_tag("sharing/_list.html", takes_context=True)
def saved_comparisons(context: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the page's project, the newest open, the others folded."""
    lines = saved_lines(context["project"])
    return {"project": context["project"], "lines": lines[:SHOWN], "older": lines[SHOWN:], "count": len(lines)}
