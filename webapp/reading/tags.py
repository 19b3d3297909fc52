"""Drawing the texts of a rollout: JSON as trees that fold, and signed bars. All text in it is hostile and escaped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django import template
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from webapp.common.text import figure
from webapp.common.ui import visible
from webapp.common.words import Outcome
from webapp.people.teams.models import Project
from webapp.reading.inspector.page import Member
from webapp.reading.task_map import SHADES, Box, Line, TaskMap
from webapp.runs.models import Run

register = template.Library()
MAX_ENTRIES = 200
MAX_DEPTH = 12
MAX_INLINE = 40
"""A list of at most this many plain values is shown in one line."""
OPEN_DEPTH, OPEN_ENTRIES = 2, 12
"""Deeper values and those with more entries are folded at first."""


@register.filter
def tree(value: Any, depth: int = 0) -> SafeString:
    """An object or a list as names and values; long and deep parts of it are folded."""
    if not isinstance(value, dict | list):
        return format_html('<span class="tree-leaf">{}</span>', visible(_leaf_text(value)))
    if not value:
        return format_html('<span class="muted">{}</span>', "{}" if isinstance(value, dict) else "[]")
    if (
        isinstance(value, list)
        and len(value) <= MAX_INLINE
        and not any(isinstance(item, dict | list) for item in value)
    ):
        tags = format_html_join(
            " ", '<span class="tag tree-tag">{}</span>', ((visible(_leaf_text(item)),) for item in value)
        )
        return format_html('<span class="tree-row">{}</span>', tags)
    if depth >= MAX_DEPTH:
        return format_html('<span class="tree-leaf">{}</span>', visible(json.dumps(value, ensure_ascii=False)))
    entries = list(value.items() if isinstance(value, dict) else enumerate(value))
    rows = format_html_join("", "<dt>{}</dt><dd>{}</dd>", _entry_rows(entries[:MAX_ENTRIES], depth))
    more = len(entries) - MAX_ENTRIES
    if more > 0:
        rest = ngettext("%(n)s more entry", "%(n)s more entries", more) % {"n": f"{more:,}"}
        rows = rows + format_html('<dt>…</dt><dd class="muted">{}</dd>', rest)
    return format_html('<dl class="tree">{}</dl>', rows)


def _entry_rows(entries: list[tuple[Any, Any]], depth: int) -> list[tuple[SafeString, SafeString]]:
    return [(visible(name), _folded_branch(item, depth + 1)) for name, item in entries]


def _folded_branch(value: Any, depth: int) -> SafeString:
    inside = len(value) if isinstance(value, dict | list) else 0
    drawn = tree(value, depth)
    if not inside or drawn.startswith("<span"):
        return drawn
    shown = depth <= OPEN_DEPTH and inside <= OPEN_ENTRIES
    label = ngettext("%(n)s entry", "%(n)s entries", inside) % {"n": f"{inside:,}"}
    return format_html(
        '<details class="fold-plain"{}><summary class="muted small">{}</summary>{}</details>',
        SafeString(" open") if shown else "",
        label,
        drawn,
    )


def _leaf_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@register.filter
def tree_like(value: Any) -> bool:
    """Whether a value is an object or a list with something in it."""
    return isinstance(value, dict | list) and bool(value)


@register.filter
def signed(value: float | None) -> str:
    """A figure with its sign, so that gains and losses differ."""
    return f"+{figure(value)}" if value is not None and value > 0 else figure(value)


@register.filter
def entry(values: dict[str, Any], key: str) -> Any:
    """The value under a key."""
    return values.get(key, "")


@register.simple_tag
def member_squares(members: Sequence[Member], project: Project, opened: str) -> SafeString:
    """A square for each rollout of a group, in the colour of its reward, that opens it; ``opened`` is the query string
    of the list. A page has hundreds of them, and a template would take several times as long."""
    base = reverse("rollout-detail", args=[project.slug, UUID(int=0)]).removesuffix(f"{UUID(int=0)}/")
    labels = {outcome.value: str(outcome.label) for outcome in Outcome}
    return format_html_join(
        "",
        '<a href="{}{}/{}" data-rollout="{}" data-state="{}"{} tabindex="-1" title="{}: {}, {}"></a>',
        (
            (base, item.pk, opened, item.pk, item.outcome, SHADES_HTML[shade], item.index,
             labels[item.outcome], figure(item.reward))
            for item, shade in members
        ),
    )  # fmt: skip


SHADES_HTML: dict[int | None, SafeString] = {
    None: SafeString(""),
    **{shade: format_html(' data-reward="{}"', shade) for shade in range(SHADES)},
}
WORDED = 12
"""With at most this many columns a cell has room for its counts and its step."""


@register.simple_tag
def map_cells(line: Line, found: TaskMap, project: Project, run: Run) -> SafeString:
    """The cells of a line of the task map: a link to the newest group of each, with its counts, steps and interval in
    words."""
    base = reverse("run-group", args=[project.slug, run.pk, 0, 0]).removesuffix("0/0/")
    worded = len(found.columns) <= WORDED
    boxes = zip(line.boxes, found.columns, strict=True)
    return format_html_join("", "{}", ((_box_cell(box, column, base, worded),) for box, column in boxes))


def _box_cell(box: Box | None, column: tuple[int, int], base: str, worded: bool) -> SafeString:
    if box is None:
        return SafeString("<td></td>")
    shade = SafeString("") if box.shade is None else format_html(' data-reward="{}"', box.shade)
    title = f"{_cell_place(box, column)}: {_cell_words(box)}"
    counts = f"{box.solved}/{box.counted}" if box.counted else "–"
    if box.step is None or box.since is None:
        inner = format_html('<span class="visually-hidden">{}</span>', title)
        return format_html('<td><i{} title="{}">{}</i></td>', shade, title, inner)
    address = f"{base}{box.step}/{box.group}/"
    if not worded:
        return format_html('<td><a{} href="{}" title="{}"></a></td>', shade, address, title)
    steps = _("step %(n)s") % {"n": reach(box.since, box.step)}
    within = "–".join(f"{round(100 * end)}%" for end in box.interval or ())
    said = format_html(
        '<i{}></i><span aria-hidden="true">{} <small>{}<br>{}</small></span>', shade, counts, steps, within
    )
    return format_html('<td data-worded><a href="{}" title="{}">{}</a></td>', address, title, said)


def reach(first: int, last: int) -> str:
    """Steps or visits in a row."""
    return str(first) if first == last else f"{first}–{last}"


def _cell_place(box: Box, column: tuple[int, int]) -> str:
    """Which visits and steps a cell is of; a category's columns are steps."""
    if box.step is None or box.since is None:
        return _("step %(n)s") % {"n": reach(*column)}
    return _("visit %(visit)s, step %(step)s") % {"visit": reach(*column), "step": reach(box.since, box.step)}


def _cell_words(box: Box) -> str:
    """What a cell says: how many of how many solved it, and where the share lies."""
    if box.share is None or box.interval is None:
        return _("no verdict")
    low, high = box.interval
    return _("%(solved)s of %(counted)s solved, %(share)s (%(low)s to %(high)s)") % {
        "solved": box.solved,
        "counted": box.counted,
        "share": f"{round(100 * box.share)}%",
        "low": f"{round(100 * low)}%",
        "high": f"{round(100 * high)}%",
    }
