"""The texts of an event, in the reader's language: for the list, mail and channels alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from django.conf import settings
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from training.doctor import RULES
from webapp.common.text import figure, in_words, percent, translated
from webapp.common.words import failure
from webapp.people.notifications.models import Channel, Event, Kind

MAX_DETAIL_CHARS = 300
PAGES = {"runs.run": "run-detail", "votes.voteround": "vote-round", "registry.registeredmodel": "model-detail"}
# Facts of an event → lines; the title has the name in it.
Lines = Callable[[dict[str, Any]], list[str]]


class Message(NamedTuple):
    """An event in one language. ``id`` is the delivery's, by which a receiver knows a message that comes twice."""

    id: str
    kind: str
    at: str
    project: str
    slug: str
    title: str
    lines: list[str]
    url: str
    facts: dict[str, Any]


class Words(NamedTuple):
    """The texts of an event; every line is a sentence or two."""

    title: str
    lines: list[str]


def words_of(event: Event) -> Words:
    """Title and lines in the language that is active."""
    title, lines = _TOLD[Kind(event.kind)]
    return Words(_(title) % {"name": event.subject}, [line for line in lines(event.facts) if line])


def path_of(event: Event) -> str:
    """The page of the event's object; for objects without a page, the project's."""
    page = PAGES.get(event.object_kind)
    slug = event.project.slug
    if page is None:
        return str(event.facts.get("path") or "") or reverse("project-page", args=[slug])
    return reverse(page, args=[slug, event.object_id])


def absolute(path: str) -> str:
    """The address under which people open it: a Host header must not choose where a link leads."""
    return str(settings.TRUSTED_ORIGINS[0]) + path


def message_of(event: Event, delivery_id: str) -> Message:
    """The event as it is sent."""
    words = words_of(event)
    return Message(
        id=delivery_id,
        kind=event.kind,
        at=event.created_at.isoformat(),
        project=event.project.name,
        slug=event.project.slug,
        title=words.title,
        lines=words.lines,
        url=absolute(path_of(event)),
        facts={"name": event.subject, "object": event.object_kind, "id": event.object_id} | event.facts,
    )


def test_message(channel: Channel, delivery_id: str) -> Message:
    """The test message of a channel's button."""
    return Message(
        id=delivery_id,
        kind="test",
        at=timezone.now().isoformat(),
        project=channel.project.name,
        slug=channel.project.slug,
        title=_("Test from Tiltyard"),
        lines=[_("Notifications of the project “%(name)s” arrive here.") % {"name": channel.project.name}],
        url=absolute(reverse("channel-list", args=[channel.project.slug])),
        facts={},
    )


test_message.__test__ = False  # type: ignore[attr-defined]  # not pytest's


def _progress_line(facts: dict[str, Any]) -> str:
    step, total = facts.get("step"), facts.get("total_steps")
    return _("Step %(step)s of %(total)s.") % {"step": step, "total": total} if total else ""


def _success_lines(facts: dict[str, Any]) -> list[str]:
    return [_progress_line(facts)]


def _failure_lines(facts: dict[str, Any]) -> list[str]:
    found = failure(facts.get("error"))
    lines = [found.title, found.detail[:MAX_DETAIL_CHARS], found.hint] if found else []
    return [*lines, _progress_line(facts)]


def _pause_lines(facts: dict[str, Any]) -> list[str]:
    if not facts.get("error"):
        return [
            _("A person or a rule of the project paused it. Resume it to continue from its newest checkpoint."),
            _progress_line(facts),
        ]
    return _failure_lines(facts)


def _advisory_lines(facts: dict[str, Any]) -> list[str]:
    rule = RULES.get(facts.get("code", ""))
    lines = [translated(rule.title), in_words(facts.get("sentence")), translated(rule.remedy)] if rule else []
    if facts.get("paused"):
        lines.append(_("A rule of the project pauses the run."))
    if facts.get("kept") is not None:
        lines.append(_("The checkpoint of step %(step)s is kept.") % {"step": facts["kept"]})
    return [*lines, _("Since step %(step)s.") % {"step": facts.get("step")}]


def _evaluation_lines(facts: dict[str, Any]) -> list[str]:
    return [_headline_text(facts.get("figure")), _left_out(facts)]


def _headline_text(found: dict[str, Any] | None) -> str:
    """The figure with its interval and the number of its tasks."""
    if not found:
        return _("It has no figures; its page says why.")
    shown = percent if found["name"] == "success" else figure
    named = _("Success: %(value)s") if found["name"] == "success" else _("Reward: %(value)s")
    tasks = ngettext("%(n)d task", "%(n)d tasks", int(found["tasks"])) % {"n": found["tasks"]}
    headline = named % {"value": shown(found["value"])}
    if found.get("low") is None or found.get("high") is None:
        return _("%(figure)s, %(tasks)s; too few for an interval.") % {"figure": headline, "tasks": tasks}
    interval = {"low": shown(found["low"]), "high": shown(found["high"])}
    return _("%(figure)s (95%%: %(low)s to %(high)s), %(tasks)s.") % ({"figure": headline, "tasks": tasks} | interval)


def _left_out(facts: dict[str, Any]) -> str:
    missing, excluded = facts.get("missing_tasks"), facts.get("excluded")
    if not missing and not excluded:
        return ""
    return _("Left out: %(missing)s tasks without a try that counts, %(excluded)s excluded tries.") % {
        "missing": missing,
        "excluded": excluded,
    }


def _vote_lines(facts: dict[str, Any]) -> list[str]:
    by = facts.get("by")
    return [_("%(who)s asks which answers are better.") % {"who": by} if by else _("Say which answers are better.")]


def _mark_lines(facts: dict[str, Any]) -> list[str]:
    by = facts.get("by")
    return [_("Marked by %(who)s.") % {"who": by} if by else ""]


_TOLD: dict[Kind, tuple[str, Lines]] = {
    Kind.RUN_SUCCEEDED: (gettext_noop("Run “%(name)s” succeeded"), _success_lines),
    Kind.RUN_FAILED: (gettext_noop("Run “%(name)s” failed"), _failure_lines),
    Kind.RUN_PAUSED: (gettext_noop("Run “%(name)s” is paused"), _pause_lines),
    Kind.RUN_ADVISORY: (gettext_noop("Run “%(name)s” needs attention"), _advisory_lines),
    Kind.EVALUATION_READY: (gettext_noop("Evaluation “%(name)s” is ready"), _evaluation_lines),
    Kind.VOTE_ASKED: (gettext_noop("Votes are asked for: %(name)s"), _vote_lines),
    Kind.MODEL_PRODUCTION: (gettext_noop("Model “%(name)s” is in production"), _mark_lines),
}
