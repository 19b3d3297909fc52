"""People's marks on a run, as its page shows them."""

from __future__ import annotations

from typing import Any

from django import template
from django.urls import reverse
from django.utils.safestring import SafeString

from webapp.runs.records.rows import star, tag_links

register = template.Library()


@register.simple_tag(takes_context=True)
def run_star(context: dict[str, Any]) -> SafeString:
    """The reader's star on the page's run."""
    run = context["run"]
    address = reverse("run-star", args=[context["project"].slug, run.pk])
    return star(run, address, context.get("starred", False), str(context["csrf_token"]))


@register.simple_tag(takes_context=True)
def run_tags(context: dict[str, Any]) -> SafeString:
    """The tags of the page's run."""
    return tag_links(context["project"].slug, context["run"].tags)
