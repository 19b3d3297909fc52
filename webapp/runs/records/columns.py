"""The columns that the list of runs can show, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from urllib.parse import quote
from uuid import UUID

from django.template.defaultfilters import linebreaksbr
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from webapp.common.pages import addresses_of
from webapp.common.text import NOTHING, duration, figure, percent, translated
from webapp.common.ui import ago, coarse, icon, sparkline
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run, RunColumns
from webapp.runs.records.listing import RunRow
from webapp.runs.records.queue_words import queue_short
from webapp.runs.states import RunState


class Column(NamedTuple):
    """A column; pages translate its title. ``sort`` is how it is sorted when it is first clicked: a key of
    ``listing.SORTS``, with ``-`` for the highest first; empty where it cannot be."""

    key: str
    title: str
    sort: str = ""
    figure: bool = False

    @property
    def up(self) -> str:
        """Its order with the lowest first."""
        return self.sort.removeprefix("-")

    @property
    def down(self) -> str:
        """Its order with the highest first."""
        return f"-{self.up}"


COLUMNS = {
    column.key: column
    for column in (
        Column("state", gettext_noop("State"), "state"),
        Column("diagnosis", gettext_noop("Diagnosis")),
        Column("success", gettext_noop("Success"), "-success", figure=True),
        Column("heldout", gettext_noop("Held-out success"), "-heldout", figure=True),
        Column("reward", gettext_noop("Reward"), "-reward", figure=True),
        Column("trend", gettext_noop("Trend")),
        Column("spec", gettext_noop("Reward spec"), "spec"),
        Column("model", gettext_noop("Model"), "model"),
        Column("dataset", gettext_noop("Dataset"), "dataset"),
        Column("tags", gettext_noop("Tags")),
        Column("owner", gettext_noop("Owner"), "owner"),
        Column("step", gettext_noop("Step"), "-step", figure=True),
        Column("duration", gettext_noop("Duration"), "-duration", figure=True),
        Column("device", gettext_noop("Device time"), "-device", figure=True),
        Column("started", gettext_noop("Started"), "-started"),
        Column("created", gettext_noop("Created"), "-created"),
    )
}
USUAL = ("state", "diagnosis", "success", "heldout", "reward", "trend", "tags", "owner", "step", "created")
SHORT = ("state", "diagnosis", "success", "reward", "trend", "owner", "step", "created")
"""Of a project's newest runs on its own page."""
LIVE = frozenset({"state", "diagnosis", "success", "heldout", "reward", "step"})
"""Whose changes a list that comes again marks; times change with every look."""


def columns_named(keys: Iterable[str]) -> list[Column]:
    """The columns of these keys in the list's order; unknown keys are left out."""
    wanted = set(keys)
    return [column for key, column in COLUMNS.items() if key in wanted]


def columns_asked(text: str) -> list[Column]:
    """The columns that an address names, separated by commas."""
    return columns_named(text[:400].split(","))


def columns_for(project: Project, user: User, asked: str = "") -> list[Column]:
    """Those that the address asks for, else those that the person chose for this project, else the usual ones."""
    if found := columns_asked(asked):
        return found
    kept = RunColumns.objects.filter(project=project, user=user).first()
    return columns_named(kept.columns if kept else USUAL)


def columns_keep(*, project: Project, user: User, keys: Iterable[str]) -> list[Column]:
    """Keep a person's choice for this project; nothing that is known, or the usual ones, forgets it."""
    found = columns_named(keys)
    chosen = [column.key for column in found]
    if not found or set(chosen) == set(USUAL):
        RunColumns.objects.filter(project=project, user=user).delete()
        return columns_named(USUAL)
    RunColumns.objects.update_or_create(project=project, user=user, defaults={"columns": chosen})
    return found


# The columns of the table of runs as a page names them, and the contents of a cell.


class Head(NamedTuple):
    """A column as a page names it."""

    key: str
    title: str
    column: Column


def heads(columns: Iterable[Column]) -> list[Head]:
    """The columns with their titles in the reader's language."""
    return [Head(column.key, translated(column.title), column) for column in columns]


def _state_cell(row: RunRow) -> SafeString:
    shown = '<span><span class="badge" data-state="{}">{}</span>{}{}</span>'
    return format_html(shown, *row.run.state_shown, _state_note(row), _open_advisories(row))


def _open_advisories(row: RunRow) -> SafeString:
    """A badge with how many advisories are open, or nothing; the run's page lists them."""
    if not row.advisories:
        return SafeString("")
    shown = ngettext("%(n)d advisory", "%(n)d advisories", row.advisories) % {"n": row.advisories}
    return format_html('<span class="cell-sub"><span class="badge" data-state="warning">{}</span></span>', shown)


def _state_note(row: RunRow) -> SafeString:
    """The small line below a state: why it failed, what it waits for, or that it is silent."""
    small, found = '<span class="cell-sub">{}</span>', row.failure
    if found is not None:
        whole = f"{found.title} {found.hint} {found.detail} ({found.code})"
        return format_html('<span class="cell-sub truncate" title="{}">{}</span>', whole, found.title)
    if row.held:
        return format_html(small, row.held)
    if row.stalled:
        silent = _("No progress for %(t)s") % {"t": coarse(row.view["progress_age_seconds"])}
        return format_html(small, format_html('<span class="badge" data-state="stale">{}</span>', silent))
    return format_html(small, queue_short(row.queue)) if row.queue is not None else SafeString("")


def _diagnosis_cell(row: RunRow) -> str:
    """The doctor's one word for how the run learns, with its reason as a title."""
    found = row.diagnosis
    if found is None:
        return NOTHING
    return format_html(
        '<span class="diagnosis" data-diagnosis="{}" title="{}">{}</span>', found.kind, found.reason, found.title
    )


def _success_cell(row: RunRow) -> str:
    between = " – ".join(map(percent, row.success_range or ()))
    return _with_sub(percent(row.success), between) if between else percent(row.success)


def _reward_cell(row: RunRow) -> str:
    reward = row.view["last_reward"]
    if reward is None:
        return NOTHING
    spec = row.spec or (_("own components") if row.own_parts else _("default components"))
    return _with_sub(figure(reward), spec, _("Rewards of different specs cannot be compared."))


def _with_sub(text: str, sub: str, about: str = "") -> SafeString:
    return format_html('<span>{}<span class="cell-sub truncate" title="{}">{}</span></span>', text, about, sub)


def _step_cell(row: RunRow) -> SafeString:
    step, total, bar = row.run.step, row.run.total_steps, SafeString("")
    if row.run.state == RunState.RUNNING:
        drawn = '<progress class="progress progress-cell" max="{}" value="{}" aria-hidden="true"></progress>'
        bar = format_html(drawn, total or 1, step)
    return format_html('<span>{}<span class="muted"> / {}</span>{}</span>', step, total, bar)


DRAWN: dict[str, Callable[[RunRow], str]] = {
    "state": _state_cell,
    "diagnosis": _diagnosis_cell,
    "success": _success_cell,
    "heldout": lambda row: percent(row.heldout),
    "reward": _reward_cell,
    "trend": lambda row: sparkline(row.sparkline),
    "spec": lambda row: row.spec or NOTHING,
    "model": lambda row: row.model or NOTHING,
    "dataset": lambda row: row.dataset or NOTHING,
    "owner": lambda row: row.owner or NOTHING,
    "step": _step_cell,
    "duration": lambda row: duration(row.duration_seconds),
    "device": lambda row: duration(row.device_seconds),
    "started": lambda row: ago(row.run.started_at),
    "created": lambda row: ago(row.run.created_at),
}


# The rows of the table of runs, drawn here and not by a template: a page has hundreds of their cells.

NOTES_SHOWN = 70
_NOTHING = SafeString("")
_CLASS = (_NOTHING, SafeString(' class="num"'))
_LIVE = (_NOTHING, SafeString(" data-live"))
_ROW = (
    '<tr id="run-{}"><td class="cell-main"><div class="cell-pick">{}<span class="cell-name"><a href="{}">{}</a> '
    '<span class="tag">{}</span>{}{}</span></div></td>{}</tr>'
)
_PICK = (
    '<input type="checkbox" class="pick" name="c" value="{0}" id="pick-{0}" form="compare-form" aria-label="{1}">{2}'
)
_STAR = (
    '<form class="star-form" method="post" action="{0}" hx-post="{0}" hx-swap="outerHTML" data-at-once="pressed">'
    '<input type="hidden" name="csrfmiddlewaretoken" value="{1}"><button class="star" id="star-{2}" name="on"'
    ' value="{3}" aria-pressed="{4}" title="{5}" aria-label="{6}">{7}</button></form>'
)
_FOLDED = '<details class="notes-peek" title="{}"><summary>{}</summary><p>{}</p></details>'


def table_rows(rows: Iterable[RunRow], shown: Sequence[Head], slug: str, csrf: str = "") -> list[SafeString]:
    """The rows as HTML. With the request's ``csrf`` token a reader may choose and star runs, and reads their notes."""
    run_address, star_address = addresses_of("run-detail", slug), addresses_of("run-star", slug)
    sweep_address = addresses_of("sweep-detail", slug)
    drawn = {**DRAWN, "tags": lambda row: tag_links(slug, row.run.tags)}
    cell = '<td{}{} data-label="{}">'
    cells = [
        (format_html(cell, _CLASS[head.column.figure], _LIVE[head.key in LIVE], head.title), drawn[head.key])
        for head in shown
    ]
    found = []
    for row in rows:
        run = row.run
        marks = _checkbox_cell(run, star(run, star_address(run.pk), row.starred, csrf)) if csrf else _NOTHING
        name = (run_address(run.pk), run.name, translated(run.imported_from) or run.kind.upper())
        notes = _note_cell(run.notes) if csrf and run.notes else _NOTHING
        others = format_html_join("", "{}{}</td>", ((opened, draw(row)) for opened, draw in cells))
        sweep = _sweep_tag(*row.sweep, sweep_address) if row.sweep else _NOTHING
        found.append(format_html(_ROW, run.pk, marks, *name, sweep, notes, others))
    return found


def _sweep_tag(sweep: UUID, name: str, address: Callable[[UUID], str]) -> SafeString:
    """A link to the sweep that a run belongs to."""
    about = _("Sweep %(name)s: which change helped?") % {"name": name}
    shown = ' <a class="tag" href="{}" title="{}">{}</a>'
    return format_html(shown, address(sweep), about, _("sweep"))


def _checkbox_cell(run: Run, star_button: SafeString) -> SafeString:
    return format_html(_PICK, run.pk, _("Choose %(name)s") % {"name": run.name}, star_button)


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
