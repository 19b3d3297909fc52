"""Template tags of the pages: the rail, the bell, roles, deletions that failed, the page of a run, and what rooms above
offer on pages of rooms below: saved comparisons, suites and vote rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django import template
from django.db.models import Q
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from webapp.common.pages import addresses_of
from webapp.common.strings import run_words
from webapp.common.text import in_words
from webapp.common.ui import icon
from webapp.common.words import Failure, failure
from webapp.datasets.quality import lost_words
from webapp.evaluation.sharing.services import saved_lines
from webapp.evaluation.suites.models import Suite
from webapp.evaluation.votes.selectors import OpenRound, open_rounds
from webapp.people.notifications.selectors import MOST_COUNTED, reader_of_page
from webapp.people.teams.models import Membership, Project, Role
from webapp.runs.models import Run
from webapp.runs.records.columns import star, tag_links
from webapp.runs.removal.models import Removal, RemovalState
from webapp.runs.removal.selectors import expiries_of, removed_sentence
from webapp.runs.removal.services import TEAM
from webapp.runs.rollouts.models import RolloutStatus
from webapp.site.rail import Link, Shown, rail_of
from webapp.site.run_pages.flight import Box, Dot

# The rail: the reader's projects and the pages of one. Drawn here and not by a template, since every page has it.

register = template.Library()
register.filter("lost_words", lost_words)
SAVED_SHOWN = 5
SUITES_OFFERED = 10

_THIS_ONE = {True: SafeString(' aria-current="true"'), False: SafeString("")}


@register.simple_tag(takes_context=True)
def page_links(context: dict[str, Any], project: Project) -> SafeString:
    """Links to this project's pages by group, with the page's own and its group marked."""
    groups = (
        (group.head.url, _here(group.head), icon(group.icon), group.head.label, _links_below(group))
        for group in rail_of(project, context.get("request"), context.get("saved_views"))
    )
    return format_html_join("\n", '<a class="rail-link" href="{}"{}>{}{}</a>{}', groups)


def _links_below(group: Shown) -> SafeString:
    if not group.below:
        return SafeString("")
    page = '<li><a class="rail-page" href="{}"{} title="{}"><span class="truncate" dir="auto">{}</span></a></li>'
    items = ((link.url, _here(link), link.label, link.label) for link in group.below)
    listed = format_html_join("\n", page, items)
    return format_html('<ul class="rail-pages" aria-label="{}">{}</ul>', group.head.label, listed)


def _here(link: Link) -> SafeString:
    return format_html(' aria-current="{}"', link.here) if link.here else SafeString("")


@register.simple_tag(takes_context=True)
def project_links(context: dict[str, Any], css_class: str) -> SafeString:
    """Links to the projects that the reader may open, with the page's own marked."""
    own, address_of = getattr(context.get("project"), "pk", None), addresses_of("project-page")
    link = '<a class="{}" href="{}"{}><span class="truncate">{}</span></a>'
    projects = reader_of_page(context).projects
    return format_html_join(
        "", link, ((css_class, address_of(item.slug), _THIS_ONE[item.pk == own], item.name) for item in projects)
    )


# Kinds of events and phases of a run in words: those that scripts have.


@register.filter
def event_kind(kind: str) -> str:
    """The kind's name."""
    return run_words().get(f"kind.{kind}", kind)


@register.filter
def phase_word(phase: str) -> str:
    """The phase of a run inside its state."""
    return run_words().get(f"phase.{phase}", phase)


# The dots of the rollouts in flight, drawn here and not by a template: a step has up to hundreds of them.

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


# People's marks on a run, as its page shows them.


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


# Deletions that failed, on the pages where a person looks after deleting something.

SHOWN = 5


class Leaving(NamedTuple):
    """A team that is being deleted, and how many of its projects are still there."""

    name: str
    left: int


class Failed(NamedTuple):
    """One deletion, why it failed, and whether the reader may try it again."""

    removal: Removal
    why: Failure | None
    mine: bool


@register.inclusion_tag("removal/_failed.html", takes_context=True)
def failed_deletions(context: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the page's project's team; without a project, those of all the reader's teams, and the teams that are
    being deleted."""
    request = context["request"]
    if (project := context.get("project")) is not None:
        roles = {project.team_id: project.role}
    else:
        memberships = Membership.objects.filter(user_id=request.user.pk)
        roles = {found.team_id: found.role for found in memberships}
    shown = Q(state=RemovalState.FAILED) | Q(state=RemovalState.WAITING, kind=TEAM)
    rows = list(Removal.objects.filter(shown, team_id__in=list(roles))[:SHOWN]) if roles else []
    leaving = [
        Leaving(item.name, Project.all_objects.filter(team=item.team_id).count())
        for item in rows
        if item.state == RemovalState.WAITING
    ]
    failed = [
        Failed(item, failure(item.error), item.team_id is not None and roles[item.team_id] == Role.OWNER)
        for item in rows
        if item.state == RemovalState.FAILED
    ]
    return {"failed": failed, "leaving": leaving, "back": request.path, "request": request}


@register.inclusion_tag("removal/_by_rules.html")
def removed_by_rules(run: Run) -> dict[str, Any]:
    """What rules of retention removed from a run: on the pages where it was."""
    return {"sentences": [removed_sentence(each) for each in expiries_of(run)]}


# Template tags that depend on the reader's role.


@register.filter
def role_at_least(project: Project, need: str) -> bool:
    """Whether the reader's role in this project (set by ``project_for``) reaches ``need``."""
    order = [Role.VIEWER, Role.EDITOR, Role.OWNER]
    return order.index(getattr(project, "role", Role.VIEWER)) >= order.index(Role(need))


# Template tags of notifications: the number at the bell, stored sentences.

register.filter("in_words", in_words)


@register.simple_tag(takes_context=True)
def unread(context: dict[str, Any]) -> str:
    """How many notifications the reader has not read, as the bell shows it; empty for none."""
    count = reader_of_page(context).unread
    return f"{MOST_COUNTED - 1}+" if count >= MOST_COUNTED else str(count or "")


@register.inclusion_tag("sharing/_list.html", takes_context=True)
def saved_comparisons(context: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the page's project, the newest open, the others folded."""
    lines = saved_lines(context["project"])
    return {
        "project": context["project"],
        "lines": lines[:SAVED_SHOWN],
        "older": lines[SAVED_SHOWN:],
        "count": len(lines),
    }


@register.inclusion_tag("suites/_play.html")
def play_a_suite(project: Project, contestant: str) -> dict[str, Any]:
    """A menu of the project's suites, each with this contestant chosen; nothing where there is none."""
    query = urlencode({"contestant": contestant})
    rows = Suite.objects.filter(project=project)[:SUITES_OFFERED]
    return {"suites": [(suite, f"{reverse('suite-detail', args=[project.slug, suite.pk])}?{query}") for suite in rows]}


@register.simple_tag(takes_context=True)
def rounds_that_wait(context: dict[str, Any], project: Project) -> list[OpenRound]:
    """The rounds in which the reader has ballots left."""
    return open_rounds(project, context["request"].user)
