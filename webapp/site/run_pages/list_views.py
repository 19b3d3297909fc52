"""The list of runs: filters, columns, stars, and acts on several runs at once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.middleware.csrf import get_token
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from training.config import METHODS
from training.evaluation import share_interval
from webapp.common.pages import errors_by_field, page_number, url_or_none
from webapp.common.serving import CsvResponse, csv_lines
from webapp.common.text import finite, percent, translated
from webapp.common.words import failure
from webapp.datasets.models import DatasetState
from webapp.datasets.selectors import datasets_of
from webapp.engine.services import QUEUE_ACTS, run_queue_change
from webapp.launch.background import preparation_lines
from webapp.people.teams.access import project_for
from webapp.people.teams.models import Project, Role, User
from webapp.results.summary import SUCCESS, rollouts_of_step
from webapp.rewards.selectors import specs_of
from webapp.runs.advisories.selectors import diagnosis_view
from webapp.runs.metrics.selectors import newest_values
from webapp.runs.models import CHECKING, Run
from webapp.runs.records import columns, listing, marks
from webapp.runs.records.columns import star, table_rows
from webapp.runs.records.marks import LONGEST, MOST
from webapp.runs.records.selectors import own_run
from webapp.runs.states import TERMINAL, Priority, RunState
from webapp.site.run_pages.ended import certainty_text

PER_PAGE = 50
CHOSEN_MOST = 200
SPECS_MOST = 200
WORDS = ("state", "kind", "owner", "q", "spec", "sweep", "starred", "archived")


def _filters_of(request: HttpRequest) -> dict[str, Any]:
    """The filters of the address."""
    filters: dict[str, Any] = {key: request.GET.get(key, "").strip() for key in WORDS}
    return filters | {"tags": [tag for tag in request.GET.getlist("tag") if tag]}


def _sort_of(request: HttpRequest) -> str:
    """An order that the list knows; anything else is newest first."""
    raw = request.GET.get("sort", "")
    return raw if raw.removeprefix("-") in listing.SORTS else "-created"


@login_required
@require_GET
def run_list_page(request: HttpRequest, slug: str) -> HttpResponse:
    """The runs of the project; while one is at work, the table polls."""
    project, user = project_for(request.user, slug), cast(User, request.user)
    htmx = getattr(request, "htmx", None)
    part = bool(htmx and not htmx.history_restore_request)
    filters, sort, asked = _filters_of(request), _sort_of(request), request.GET.get("cols", "")
    shown = columns.heads(columns.columns_for(project, user, asked))
    trends, number = any(head.key == "trend" for head in shown), page_number(request.GET.get("page"))
    found = listing.run_list(project, filters, sort, number, PER_PAGE, user=user, trends=trends)
    preparations, around = preparation_lines(project), listing.around(project)
    checked_now = [] if found.total else list(datasets_of(project).filter(state=DatasetState.CHECKING))
    context = {
        "project": project,
        "lines": table_rows(found.rows, shown, slug, get_token(request)),
        "heads": shown,
        "total": found.total,
        "filters": filters,
        "sort": sort,
        "page_obj": Paginator(range(found.total), PER_PAGE).get_page(found.page),
        "filtered": any(value for key, value in filters.items() if key != "archived"),
        "archived": around.archived,
        "refresh": any(_may_change(row.view) for row in found.rows)
        or any(line.item.state == "open" for line in preparations)
        or bool(checked_now),
        "new_url": url_or_none("run-new", slug),
        "preparations": preparations,
        "checked_now": checked_now,
    }
    if not part:
        chosen = {head.key for head in shown}
        offered = [(head, head.key in chosen) for head in columns.heads(columns.COLUMNS.values())]
        context |= _toolbar_choices(project) | {"owners": around.owners, "offered": offered, "asked": asked}
    response = render(request, "runs/_list.html" if part else "runs/list.html", context)
    patch_vary_headers(response, ["HX-Request"])
    return response


def _toolbar_choices(project: Project) -> dict[str, Any]:
    """The choices of the toolbar."""
    specs = specs_of(project).order_by("name", "-version").values_list("name", "version")[:SPECS_MOST]
    return {
        "states": RunState.choices,
        "methods": [(kind, translated(method.short)) for kind, method in METHODS.items()],
        "tags": listing.run_tags(project),
        "specs": [f"{name}@{version}" for name, version in specs],
    }


def _may_change(view: dict[str, Any]) -> bool:
    """Whether a run of the list may change by itself."""
    return view["state"] not in TERMINAL and (view["state"] != RunState.DRAFT or view["phase"] == CHECKING)


def _return_address(request: HttpRequest, slug: str) -> str:
    """The address of the list, or of the run, that the person acted from."""
    given = urlsplit(request.POST.get("next") or request.headers.get("Referer", ""))
    home = reverse("run-list", args=[slug])
    known = re.fullmatch(re.escape(home) + r"([0-9a-f-]{36}/)?", given.path)
    if known is None or given.netloc not in ("", request.get_host()):
        return home
    return urlunsplit(("", "", given.path, given.query, ""))


@login_required
@require_POST
def run_columns(request: HttpRequest, slug: str) -> HttpResponse:
    """Keep the person's columns for this project."""
    project = project_for(request.user, slug)
    keys = [] if "usual" in request.POST else request.POST.getlist("column")
    found = columns.columns_keep(project=project, user=cast(User, request.user), keys=keys)
    address, _mark, query = _return_address(request, slug).partition("?")
    view = QueryDict(query, mutable=True)
    view.pop("cols", None)
    if tuple(column.key for column in found) != columns.USUAL:  # other readers of the address see the same
        view["cols"] = ",".join(column.key for column in found)
    return redirect(f"{address}?{view.urlencode(safe=',')}" if view else address)


@login_required
@require_POST
def run_star(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Put the person's star on a run (``on=1``) or take it away; scripts get the new button."""
    _project, run = own_run(request, slug, pk)
    starred = request.POST.get("on") == "1"
    marks.run_star(run=run, user=cast(User, request.user), on=starred)
    if getattr(request, "htmx", None):
        return HttpResponse(star(run, request.path, starred, get_token(request)))
    return redirect(_return_address(request, slug))


@login_required
@require_http_methods(["GET", "POST"])
def run_label(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Change a run's tags and notes; GET returns the project's tags, which the editor loads when it opens."""
    project, run = own_run(request, slug, pk, need=Role.EDITOR)
    if request.method == "GET":
        return render(request, "runs/_known_tags.html", {"tags": listing.run_tags(project)})
    given = {key: request.POST[key] for key in ("tags", "notes") if key in request.POST}
    try:
        marks.run_label(run=run, user=cast(User, request.user), **given)
        messages.success(request, _("Tags and notes were saved."))
    except ValidationError as exc:
        messages.error(request, _error_sentence(exc))
    return redirect("run-detail", slug=slug, pk=pk)


def _error_sentence(exc: ValidationError) -> str:
    return " ".join(text for texts in errors_by_field(exc).values() for text in texts)


# --- Several at once ------------------------------------------------------------------------------------------------
def _chosen_runs(request: HttpRequest, project: Project) -> list[Run]:
    """The runs whose boxes were ticked, by name."""
    given = request.POST if request.method == "POST" else request.GET
    ids = []
    for text in given.getlist("c")[:CHOSEN_MOST]:
        try:
            ids.append(UUID(text))
        except ValueError:
            continue
    return list(project.runs.filter(pk__in=ids).select_related("project").defer(*listing.UNREAD).order_by("name"))


def _none_chosen_response(request: HttpRequest, slug: str) -> HttpResponse:
    messages.info(request, _("Tick the boxes of the runs first."))
    return redirect(_return_address(request, slug))


@login_required
@require_http_methods(["GET", "POST"])
def runs_tag(request: HttpRequest, slug: str) -> HttpResponse:
    """Add tags to the chosen runs, or take some away."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    chosen = _chosen_runs(request, project)
    if not chosen:
        return _none_chosen_response(request, slug)
    context: dict[str, Any] = {"project": project, "chosen": chosen, "tags": listing.run_tags(project)}
    context["back"] = _return_address(request, slug)
    context |= {"add": request.POST.get("add", ""), "remove": request.POST.getlist("remove"), "most": MOST}
    context["theirs"] = sorted({tag for run in chosen for tag in run.tags})
    if request.method == "GET":
        return render(request, "runs/tag.html", context | {"longest": LONGEST})
    try:
        number = marks.runs_tag(
            runs=chosen, user=cast(User, request.user), add=context["add"], remove=" ".join(context["remove"])
        )
    except ValidationError as exc:
        return render(
            request, "runs/tag.html", context | {"longest": LONGEST, "problem": _error_sentence(exc)}, status=422
        )
    message = ngettext("The tags of %(n)d run were changed.", "The tags of %(n)d runs were changed.", number)
    messages.success(request, message % {"n": number})
    return redirect(context["back"])


@login_required
@require_http_methods(["GET", "POST"])
def runs_archive(request: HttpRequest, slug: str) -> HttpResponse:
    """Hide the chosen runs from the list, or (``on=0``) show them again."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    chosen = _chosen_runs(request, project)
    if not chosen:
        return _none_chosen_response(request, slug)
    if request.method == "GET":
        context = {
            "project": project,
            "chosen": chosen,
            "back": _return_address(request, slug),
            "active": [run for run in chosen if run.state not in marks.ARCHIVABLE],
            "restore": all(run.archived_at for run in chosen),
        }
        return render(request, "runs/archive.html", context)
    on = request.POST.get("on") != "0"
    outcome = marks.runs_archive(runs=chosen, user=cast(User, request.user), on=on)
    _message_archived(request, outcome, on)
    return redirect(_return_address(request, slug))


def _message_archived(request: HttpRequest, outcome: marks.Archived, on: bool) -> None:
    archived = ngettext("%(n)d run was archived.", "%(n)d runs were archived.", outcome.done)
    restored = ngettext("%(n)d run is in the list again.", "%(n)d runs are in the list again.", outcome.done)
    messages.success(request, (archived if on else restored) % {"n": outcome.done})
    if outcome.active:
        left = ngettext(
            "%(n)d run has not ended and stays in the list.",
            "%(n)d runs have not ended and stay in the list.",
            outcome.active,
        )
        messages.warning(request, left % {"n": outcome.active})


@login_required
@require_http_methods(["GET", "POST"])
def runs_queue(request: HttpRequest, slug: str) -> HttpResponse:
    """Hold or release those of the chosen runs that wait, or give them another class."""
    project = project_for(request.user, slug, need=Role.OWNER)
    chosen = _chosen_runs(request, project)
    if not chosen:
        return _none_chosen_response(request, slug)
    back = _return_address(request, slug)
    if request.method == "GET":
        others = [run for run in chosen if run.state != RunState.QUEUED]
        context = {"project": project, "chosen": chosen, "others": others, "priorities": Priority.choices}
        return render(request, "runs/queue.html", context | {"back": back})
    change = QUEUE_ACTS.get(request.POST.get("act", ""))
    if change is None or change.first:  # one run alone can be first
        return HttpResponse(status=400)
    done, refused = 0, defaultdict[str, list[str]](list)
    for run in chosen:
        try:
            run_queue_change(run=run, user=cast(User, request.user), change=change)
            done += 1
        except ValidationError as exc:
            refused[_error_sentence(exc)].append(run.name)
    if done:
        changed = ngettext("%(n)d run is in the queue as you chose.", "%(n)d runs are in the queue as you chose.", done)
        messages.success(request, changed % {"n": done})
    for why, names in refused.items():
        messages.warning(request, _("%(name)s: %(why)s") % {"name": _(", ").join(names), "why": why})
    return redirect(back)


@login_required
@require_GET
def runs_csv(request: HttpRequest, slug: str) -> HttpResponse | CsvResponse:
    """The chosen runs, or all that the filters leave, as a table with the columns of the list."""
    project, user = project_for(request.user, slug), cast(User, request.user)
    chosen = [run.pk for run in _chosen_runs(request, project)] if "c" in request.GET else None
    if chosen is None and "all" not in request.GET:
        return _none_chosen_response(request, slug)
    shown = [
        column for column in columns.columns_for(project, user, request.GET.get("cols", "")) if column.key != "trend"
    ]
    rows = listing.run_rows(project, _filters_of(request), _sort_of(request), user=user, chosen=chosen)
    header = ["name", "kind", *(column.key for column in shown), "notes"]
    lines = csv_lines(header, (_csv_cells(row, shown) for row in rows))
    return CsvResponse(lines, f"{slug}-runs.csv")


def _csv_cells(row: listing.RunRow, shown: Sequence[columns.Column]) -> list[object]:
    run = row.run
    known: dict[str, object] = {
        "state": run.state,
        "success": row.success,
        "diagnosis": row.diagnosis.kind if row.diagnosis else "",
        "heldout": row.heldout,
        "reward": row.view["last_reward"],
        "spec": row.spec,
        "model": row.model,
        "dataset": row.dataset,
        "tags": " ".join(run.tags),
        "owner": row.owner,
        "step": run.step,
        "duration": row.duration_seconds,
        "device": row.device_seconds,
        "started": row.view["started_at"],
        "created": run.created_at.isoformat(),
    }
    return [run.name, run.kind, *(known[column.key] for column in shown), run.notes]


# The card about a run that a link to it shows while the pointer rests on the link.

SPARK_VALUES = 48


class Share(NamedTuple):
    """A figure of success. ``about``: how certain it is; empty where that is not known."""

    title: str
    value: str
    about: str
    trend: list[float | None]


def success_of(run: Run) -> list[Share]:
    """What is known of a run's success: on held-out tasks, then on the tasks that it plays."""
    return [*_held_out(run), *_played(run)]


def _held_out(run: Run) -> Iterator[Share]:
    known = run.health.get("held_out") or {}
    found = known.get("best") or known.get("newest")
    if found is not None:
        about = certainty_text(known.get("tasks") or 0, found.get("low"), found.get("high"), tasks=True)
        yield Share(_("Held-out success"), percent(found["success"]), about, [])


def _played(run: Run) -> Iterator[Share]:
    """Of all tasks where an evaluation has ended, else of the newest step."""
    whole = ((run.evaluation or {}).get("figures") or {}).get("success") or {}
    if whole.get("value") is not None:
        about = certainty_text(whole.get("tasks") or 0, whole.get("low"), whole.get("high"), tasks=True)
        yield Share(_("Success"), percent(whole["value"]), about, [])
        return
    share = finite(run.success)
    if share is not None:
        trend = newest_values(run, [SUCCESS], SPARK_VALUES).get(SUCCESS, [])
        yield Share(_("Success"), percent(share), _certainty_of_step(run, share), trend)


def _certainty_of_step(run: Run, share: float) -> str:
    tries = rollouts_of_step(run)
    if not tries or not 0 <= share <= 1:
        return ""
    return certainty_text(tries, *share_interval(round(share * tries), tries), tasks=False)


@login_required
@require_GET
def run_preview(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The card, as a part of a page."""
    _project, run = own_run(request, slug, pk)
    context = {
        "run": run,
        "kind": translated(run.imported_from) or run.kind.upper(),
        "diagnosis": diagnosis_view(run),
        "failure": failure(run.error),
        "shares": success_of(run),
    }
    return render(request, "runs/_preview.html", context)
