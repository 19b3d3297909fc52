"""Drawing the texts of a rollout: JSON as trees that fold, and signed bars. All text in it is hostile and escaped."""

from __future__ import annotations

import json
from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from webapp.common.text import figure
from webapp.common.ui import visible
from webapp.people.teams.models import Project
from webapp.reading.task_map import Box, Line
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
def map_cells(line: Line, project: Project, run: Run) -> SafeString:
    """The cells of a line of the task map: a link to the newest group of its steps, and its share in words."""
    base = reverse("run-group", args=[project.slug, run.pk, 0, 0]).removesuffix("0/0/")
    return format_html_join("", "{}", ((_box_cell(box, base),) for box in line.boxes))


def _box_cell(box: Box | None, base: str) -> SafeString:
    if box is None:
        return SafeString("<td></td>")
    words = _("no verdict") if box.share is None else f"{round(100 * box.share)}%"
    shade = SafeString("") if box.shade is None else format_html(' data-reward="{}"', box.shade)
    inner = format_html('<span class="visually-hidden">{}</span>', words)
    title = f"{words} ({box.solved}/{box.counted})"
    if box.step is None:
        return format_html('<td><i{} title="{}">{}</i></td>', shade, title, inner)
    return format_html(
        '<td><a{} href="{}{}/{}/" title="{}">{}</a></td>', shade, base, box.step, box.group, title, inner
    )
