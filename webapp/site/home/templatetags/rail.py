"""The rail: the reader's projects and the pages of one. Drawn here and not by a template, since every page has it."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from webapp.common.pages import addresses_of, url_or_none
from webapp.common.ui import icon
from webapp.people.notifications.selectors import reader_of_page
from webapp.people.teams.models import Project

register = template.Library()

# Label, icon, address name, first parts of address names that belong to it. A name without an address shows no link.
RAIL = [
    (gettext_lazy("Overview"), "home", "project-page", ("project",)),
    (gettext_lazy("Runs"), "runs", "run-list", ("run", "rollout")),
    (gettext_lazy("Datasets"), "datasets", "dataset-list", ("dataset",)),
    (gettext_lazy("Rewards"), "rewards", "reward-list", ("reward", "lab")),
    (gettext_lazy("Environments"), "environments", "environment-list", ("environment",)),
    (gettext_lazy("Models"), "models", "model-list", ("model", "checkpoint")),
    (gettext_lazy("Endpoints"), "link", "endpoint-list", ("endpoint",)),
    (gettext_lazy("Chat"), "chat", "chat-list", ("chat",)),
    (gettext_lazy("Compare"), "compare", "compare", ("compare", "suite", "vote")),
    (gettext_lazy("Settings"), "settings", "team-settings", ("team", "member", "channel")),
]
_HERE = {True: SafeString(' aria-current="page"'), False: SafeString("")}
_THIS_ONE = {True: SafeString(' aria-current="true"'), False: SafeString("")}


@register.simple_tag(takes_context=True)
def page_links(context: dict[str, Any], project: Project) -> SafeString:
    """Links to this project's pages: only those that exist, with the page's own marked."""
    match = getattr(context.get("request"), "resolver_match", None)
    here = (getattr(match, "url_name", "") or "").split("-")[0]
    links = (
        (url, _HERE[here in parts], icon(icon_name), label)
        for label, icon_name, url_name, parts in RAIL
        if (url := url_or_none(url_name, project.slug))
    )
    return format_html_join("\n", '<a class="rail-link" href="{}"{}>{}{}</a>', links)


@register.simple_tag(takes_context=True)
def project_links(context: dict[str, Any], css_class: str) -> SafeString:
    """Links to the projects that the reader may open, with the page's own marked."""
    own, address_of = getattr(context.get("project"), "pk", None), addresses_of("project-page")
    link = '<a class="{}" href="{}"{}><span class="truncate">{}</span></a>'
    projects = reader_of_page(context).projects
    return format_html_join(
        "", link, ((css_class, address_of(item.slug), _THIS_ONE[item.pk == own], item.name) for item in projects)
    )
