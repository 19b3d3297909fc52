"""The rows of the table of runs, drawn here and not by a template: a page has hundreds of their cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import quote

from django.template.defaultfilters import linebreaksbr
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from webapp.common.pages import addresses_of
from webapp.common.text import translated
from webapp.common.ui import icon
from webapp.runs.models import Run
from webapp.runs.records.columns import DRAWN, Head
from webapp.runs.records.listing import RunRow

NOTES_SHOWN = 70
_NOTHING = SafeString("")
_ROW = (
    '<tr><td class="cell-main"><div class="cell-pick">{}<span class="cell-name"><a href="{}">{}</a> '
    '<span class="tag">{}</span>{}</span></div></td>{}</tr>'
)
_PICK = (
    '<input type="checkbox" class="pick" name="c" value="{0}" id="pick-{0}" form="compare-form" hx-preserve'
    ' aria-label="{1}">{2}'
)
_STAR = (
    '<form class="star-form" method="post" action="{0}" hx-post="{0}" hx-swap="outerHTML">'
    '<input type="hidden" name="csrfmiddlewaretoken" value="{1}"><button class="star" id="star-{2}" name="on"'
    ' value="{3}" aria-pressed="{4}" title="{5}" aria-label="{6}">{7}</button></form>'
)
_FOLDED = '<details class="notes-peek" title="{}"><summary>{}</summary><p>{}</p></details>'


def table_rows(rows: Iterable[RunRow], shown: Sequence[Head], slug: str, csrf: str = "") -> list[SafeString]:
    """The rows as HTML. With the request's ``csrf`` token a reader may choose and star runs, and reads their notes."""
    run_address, star_address = addresses_of("run-detail", slug), addresses_of("run-star", slug)
    drawn = {**DRAWN, "tags": lambda row: tag_links(slug, row.run.tags)}
    cell = '<td{} data-label="{}">'
    cells = [
        (format_html(cell, SafeString(' class="num"' if head.column.figure else ""), head.title), drawn[head.key])
        for head in shown
    ]
    found = []
    for row in rows:
        run = row.run
        marks = _checkbox_cell(run, star(run, star_address(run.pk), row.starred, csrf)) if csrf else _NOTHING
        name = (run_address(run.pk), run.name, translated(run.imported_from) or run.kind.upper())
        notes = _note_cell(run.notes) if csrf and run.notes else _NOTHING
        others = format_html_join("", "{}{}</td>", ((opened, draw(row)) for opened, draw in cells))
        found.append(format_html(_ROW, marks, *name, notes, others))
    return found


def _checkbox_cell(run: Run, beside: SafeString) -> SafeString:
    return format_html(_PICK, run.pk, _("Choose %(name)s") % {"name": run.name}, beside)


def star(run: Run, address: str, starred: bool, csrf: str) -> SafeString:
    """The button that puts the reader's star on a run or takes it away."""
    about = _("Star %(name)s") % {"name": run.name}
    pressed = ("0", "true") if starred else ("1", "false")
    return format_html(_STAR, address, csrf, run.pk, *pressed, _("Your star"), about, icon("star"))


def tag_links(slug: str, tags: Sequence[str]) -> SafeString:
    """Tags, each with a link to the project's runs that have it; nothing where there are none."""
    if not tags:
        return _NOTHING
    runs, about = reverse("run-list", args=[slug]), _("Runs tagged %(tag)s")
    links = ((runs, quote(tag), about % {"tag": tag}, tag) for tag in tags)
    return format_html(
        '<span class="tags">{}</span>',
        format_html_join("", '<a class="tag" href="{}?tag={}" title="{}">{}</a>', links),
    )


def _note_cell(notes: str) -> SafeString:
    """A note at a glance, with the rest of a long one folded away."""
    short = Truncator(notes).chars(NOTES_SHOWN)
    if short == notes:
        return format_html('<span class="cell-sub" title="{0}">{0}</span>', notes)
    return format_html(_FOLDED, notes, short, linebreaksbr(notes))
