"""Pages of one run, and the acts on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.text import slugify
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import reswap

from training.errors import ConfigError
from training.plain import number_in
from webapp.common.answers import in_shape
from webapp.common.ids import name_validator
from webapp.common.pages import add_errors, url_or_none
from webapp.common.serving import CsvResponse, csv_lines
from webapp.common.words import failure
from webapp.datasets.rollouts import BOUNDS, MAX_GAP, counts, gaps_of, pairs_order, pairs_problem
from webapp.endpoints.selectors import run_spend
from webapp.engine.services import (
    QUEUE_ACTS,
    GoingOn,
    run_pause,
    run_queue_change,
    run_resume,
    run_stop,
    saved_checkpoints,
    whole_among,
    whole_checkpoints,
)
from webapp.environments.selectors import baseline_short
from webapp.evaluation.comparison.boards import bfcl_score_files, official_of, own_figures
from webapp.foreign.importing import import_report
from webapp.launch.background import check_view
from webapp.launch.play_views import policy_table
from webapp.people.teams.access import can_edit, projects_of
from webapp.people.teams.models import Project, Role, User
from webapp.results.summary import ENDED, summary_of
from webapp.results.views import model_of_run
from webapp.runs import answers
from webapp.runs.advisories.selectors import Advised, advised
from webapp.runs.metrics.selectors import curves, metric_names
from webapp.runs.models import Run
from webapp.runs.records.marks import ARCHIVABLE
from webapp.runs.records.queue import read_queue
from webapp.runs.records.queue_words import queue_answer
from webapp.runs.records.selectors import own_run, stalled
from webapp.runs.registry.models import Checkpoint
from webapp.runs.reports import held_text, report_lines
from webapp.runs.states import LEASED, TERMINAL, Priority, RunState
from webapp.site.run_pages import page
from webapp.site.run_pages.devices import has_card
from webapp.site.run_pages.ended import Reader, context_of, replaced_tiles
from webapp.site.run_pages.flight import flight_of, newest_said
from webapp.site.run_pages.parts import family_of, held_out_of, room_for, times_of

CHILDREN_SHOWN, CHECKPOINTS_SHOWN = 5, 100
CHECKED = frozenset({RunState.DRAFT, RunState.QUEUED})
"""States in which the check before the launch is still of interest."""


def _is_owner(project: Project) -> bool:
    """Whether the reader is an owner, who may see the server's folders and addresses."""
    return str(getattr(project, "role", "")) == Role.OWNER


@login_required
@require_GET
def run_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The page of one run. The socket keeps its figures up to date."""
    project, run = own_run(request, slug, pk)
    tab, played = request.GET.get("tab", ""), page.has_rollouts(run)
    if tab == "rollouts" and played:
        return redirect(_rollouts_address(request, run))
    tab = tab if tab in page.TABS else "curves"
    (events, older), (log, log_older) = page.course_and_log(run)
    urls = {
        "rollouts": reverse("run-rollouts", args=[slug, pk]) if played else "",
        "events": reverse("run-events", args=[slug, pk]),
    }
    family, saved = family_of(run), saved_checkpoints(run)
    whole = whole_among(saved)
    found, flight = advised(run, whole), flight_of(run, seen=tab == "curves")
    soon = flight is not None and tab == "curves" and run.state in LEASED  # else the page asks when it is looked at
    context = {
        **_by_state(project, run, found, whole),
        "family": family,
        "held_out": held_out_of(run, whole),
        "official": official_of(run),
        "starred": getattr(run, "starred", False),
        "tab": tab,
        "has_rollouts": played,
        "rollouts_url": rollouts_address(run),
        "read": import_report(run),
        "queue": _queue_of(request, run),
        "tiles": page.tiles(run),
        "flight": flight,
        "said": newest_said(run) if soon else None,
        "later": not soon,
        "places": room_for(run),
        "has_devices": has_card(run),
        "config": page.config_texts(run, places=_is_owner(project)),
        "changed": page.changed_options(run),
        "custom_code": page.custom_code(run),
        "events": events,
        "older": older,
        "checkpoints": sorted(saved, key=lambda each: (each.step, each.attempt), reverse=True)[:CHECKPOINTS_SHOWN],
        "log": log,
        "log_older": log_older,
        "data": page.page_data(run, urls, tab) | {"tabs": page.TABS, "can_pin": can_edit(project)},
    }
    if context["summary"] is not None:
        context["tiles"] = [tile for tile in context["tiles"] if tile.name not in replaced_tiles(context["summary"])]
    if family is None or not family.more:  # else the family's card may lack some of them
        members = family.members if family is not None else []
        context["children"] = [each.run for each in members if each.run.parent_id == run.pk][:CHILDREN_SHOWN]
    return render(request, "runs/detail.html", context)


def rollouts_address(run: Run) -> str:
    """The list of its rollouts; of a run at work it follows the newest step."""
    address = reverse("run-rollouts", args=[run.project.slug, run.pk])
    return address if run.state in TERMINAL else f"{address}?newest=yes"


def _rollouts_address(request: HttpRequest, run: Run) -> str:
    """Where an address of the run page's former tab of rollouts leads: to the same step and rollout."""
    step, asked = number_in(request.GET.get("step", ""), 8), []
    if step is not None:
        asked += [("step_from", str(step)), ("step_to", str(step))]
    if rollout := request.GET.get("rollout", ""):
        asked.append(("rollout", rollout[:36]))
    return (
        f"{reverse('run-rollouts', args=[run.project.slug, run.pk])}?{urlencode(asked)}"
        if asked
        else rollouts_address(run)
    )


def _queue_of(request: HttpRequest, run: Run) -> dict[str, Any] | None:
    """The run's place in the queue as the reader may see it; ``None`` where it is not queued."""
    if run.state != RunState.QUEUED:
        return None
    return queue_answer(read_queue().queued(run.pk), set(projects_of(request.user).values_list("pk", flat=True)))


def _by_state(project: Project, run: Run, found: Advised, whole: list[Checkpoint]) -> dict[str, Any]:
    """The context of the parts that are drawn again when the run's state changes."""
    view, clone, going_on = in_shape(answers.RunView, run), url_or_none("run-new", project.slug), GoingOn(run, whole)
    editor, made = can_edit(project), model_of_run(run, whole)
    can = page.actions(going_on, editor=editor)
    chat_url = f"{reverse('chat-new', args=[project.slug])}?{urlencode({'model': run.reference})}"
    evaluate_url = f"{clone}?{urlencode({'from': run.pk, 'kind': 'evaluate', 'model': run.reference})}"
    ended: dict[str, Any] = {"summary": None}
    if run.state in ENDED:
        came = summary_of(
            run, editor=editor, made=made, going_on=going_on, advisories=found.open, checkpoints=whole
        )  # fmt: skip
        clone_url = f"{clone}?from={run.pk}" if clone else ""
        reader = Reader(can, editor, evaluate_url, chat_url, clone_url, page.next_act(going_on))
        ended = context_of(run, came, reader) | {"closed": run.state in TERMINAL}
    return {
        **ended,
        "advised": found,
        "project": project,
        "run": run,
        "view": view,
        "baselines": baseline_short(run.baselines),
        "testbed": policy_table(run),
        "evaluation": own_figures(run),
        "spend": run_spend(run),
        "failure": failure(view["error"]),
        "stalled": stalled(run),
        "held": held_text(run.held),
        "reports": report_lines(run.health, run.error),
        "children": project.runs.filter(parent=run).order_by("created_at")[:CHILDREN_SHOWN],
        "branch_url": f"{clone}?resume={run.pk}" if clone else None,
        "check": check_view(run) if run.state in CHECKED else None,
        "can_edit": editor,
        "archivable": run.archived_at is not None or run.state in ARCHIVABLE,
        "can": can,
        "priorities": Priority.choices,
        "output": page.trainer_output(run),
        "clone_url": f"{clone}?from={run.pk}" if clone else None,
    }


@login_required
@require_GET
def run_advisories(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The doctor's findings. 204 while the page shows them already, so that nothing moves under the reader; where only
    the diagnosis is another, it comes alone, and the advisories with what is unfolded in them stay."""
    project, run = own_run(request, slug, pk)
    whole = whole_checkpoints(run)
    found = advised(run, whole)
    same = request.GET.get("shown") == found.key
    if same and request.GET.get("answer", found.answer_key) == found.answer_key:
        return HttpResponse(status=204)
    context = {**_by_state(project, run, found, whole), "fresh": True}
    if same:
        return reswap(render(request, "runs/_diagnosis.html", context), "none")  # out of band only
    return render(request, "runs/_advisories.html", context)


@login_required
@require_GET
def run_score_files(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The score files of an evaluation on BFCL, as its own checker writes them."""
    _project, run = own_run(request, slug, pk)
    official = official_of(run)
    if official is None or not official.files:
        messages.warning(request, _("This run has no BFCL score files: it is no evaluation of BFCL that has ended."))
        return redirect("run-detail", slug=slug, pk=pk)
    answer = HttpResponse(bfcl_score_files(run), content_type="application/zip")
    answer["Content-Disposition"] = f'attachment; filename="{slugify(run.name) or "run"}-bfcl-scores.zip"'
    return answer


@login_required
@require_GET
def run_parts(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The parts of an open page that it cannot draw by itself, for the run's present state: buttons and last output."""
    project, run = own_run(request, slug, pk)
    whole = whole_checkpoints(run)
    context = _by_state(project, run, advised(run, whole), whole)
    return render(request, "runs/_parts.html", {**context, "fresh": True})


@login_required
@require_GET
def run_spending(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The run's use of its endpoint, against the limits; the part polls until the run has ended."""
    project, run = own_run(request, slug, pk)
    return render(request, "runs/_spend.html", {"project": project, "run": run, "spend": run_spend(run)})


@login_required
@require_GET
def run_times(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The times of its last steps; an open page asks again when a step has ended."""
    project, run = own_run(request, slug, pk)
    return render(request, "runs/_times.html", {"project": project, "run": run, "times": times_of(run), "fresh": True})


def _seq_before(request: HttpRequest) -> int | None:
    """The ``seq`` before which a page asks for older things."""
    return number_in(request.GET.get("before", ""), 18)


def _act_and_redirect(
    request: HttpRequest, slug: str, pk: UUID, action: Callable[..., Run], words: dict[str, str]
) -> HttpResponse:
    _project, run = own_run(request, slug, pk, need=Role.EDITOR)
    try:
        run = action(run=run, user=cast(User, request.user))
    except ConfigError as exc:  # an object that it names is gone
        messages.error(request, exc.message)
        return redirect("run-detail", slug=slug, pk=pk)
    notice = words.get(run.state)
    if notice:
        messages.success(request, notice)
    else:
        messages.warning(
            request, _("That is not possible now: the run is %(state)s.") % {"state": run.get_state_display()}
        )
    return redirect("run-detail", slug=slug, pk=pk)


@login_required
@require_POST
def run_stop_view(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Stop a run. From a checkpoint it can be resumed."""
    words = {"stopping": _("The run stops when its current work is done."), "cancelled": _("The run is cancelled.")}
    return _act_and_redirect(request, slug, pk, run_stop, words)


@login_required
@require_POST
def run_pause_view(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Pause a run; it can continue from its newest checkpoint."""
    return _act_and_redirect(
        request,
        slug,
        pk,
        run_pause,
        {"pausing": _("The run pauses at the next safe point."), "paused": _("The run is paused.")},
    )


@login_required
@require_POST
def run_resume_view(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Queue a run again that was paused or ended."""
    return _act_and_redirect(
        request, slug, pk, run_resume, {"queued": _("The run is queued again."), "preparing": _("The run continues.")}
    )


@login_required
@require_POST
def run_queue_view(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """An owner's change of a waiting run's place: hold, release, first, or a class."""
    _project, run = own_run(request, slug, pk, need=Role.OWNER)
    change = QUEUE_ACTS.get(request.POST.get("act", ""))
    if change is None:
        return HttpResponse(status=400)
    try:
        run_queue_change(run=run, user=cast(User, request.user), change=change)
        messages.success(request, _("The queue is changed."))
    except ValidationError as exc:
        messages.error(request, exc.messages[0])
    return redirect("run-detail", slug=slug, pk=pk)


def _text_file(name: str, text: str, kind: str) -> HttpResponse:
    response = HttpResponse(text, content_type=f"{kind}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


@login_required
@require_GET
def run_log(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Log and events as a text file, then the last output of the trainer's process."""
    _project, run = own_run(request, slug, pk)
    lines = page.log_file(run)
    output = page.trainer_output(run)
    if output:
        lines += ["", "--- output of the trainer ---", *output]
    return _text_file(f"{slugify(run.name) or run.pk}.log.txt", "\n".join(lines) + "\n", "text/plain")


@login_required
@require_GET
def run_log_older(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Earlier lines of the log, as a fragment."""
    project, run = own_run(request, slug, pk)
    log, older = page.log_before(run, _seq_before(request))
    return render(request, "runs/_log_lines.html", {"project": project, "run": run, "log": log, "log_older": older})


@login_required
@require_GET
def run_output(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The last output of the trainer's process, as a fragment: an open log polls it."""
    project, run = own_run(request, slug, pk)
    return render(
        request, "runs/_log_output.html", {"project": project, "run": run, "output": page.trainer_output(run)}
    )


@login_required
@require_GET
def run_config(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The config as a YAML file: for owners resolved, as ``python -m training run`` takes it, for others with its
    references instead of the server's folders and addresses."""
    project, run = own_run(request, slug, pk)
    return _text_file(
        f"{slugify(run.name) or run.pk}.yaml",
        page.config_texts(run, places=_is_owner(project))["all"],
        "application/yaml",
    )


@login_required
@require_GET
def run_events(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Older events, as rows for the table."""
    project, run = own_run(request, slug, pk)
    events, older = page.events_before(run, _seq_before(request))
    return render(request, "runs/_events.html", {"project": project, "run": run, "events": events, "older": older})


# --- Curve table ----------------------------------------------------------------------------------------------------
# The curves of a chart as a table: every point that counts, none thinned.

NAME_MAX = 120
EVERY = 2**31


@login_required
@require_GET
def run_curves_csv(request: HttpRequest, slug: str, pk: UUID) -> CsvResponse:
    """A row for each step, a column for each metric that is named (all, where none is), an empty cell where there is no
    finite figure."""
    _project, run = own_run(request, slug, pk)
    asked = list(dict.fromkeys(request.GET.getlist("name"))) or metric_names(run)
    names = [name for name in asked if 0 < len(name) <= NAME_MAX and name.isprintable()]
    if asked and not names:
        raise Http404
    return CsvResponse(
        csv_lines(["step", *names], _table_rows(run, names)), f"{slugify(run.name) or run.pk}-curves.csv"
    )


def _table_rows(run: Run, names: Sequence[str]) -> Iterator[tuple[int | float | None, ...]]:
    found = curves(run, names, EVERY)
    known = [
        dict(zip(found[name]["steps"], found[name]["values"], strict=True)) if name in found else {} for name in names
    ]
    for step in sorted(set().union(*known)):
        yield (step, *(each.get(step) for each in known))


# --- Pairs ----------------------------------------------------------------------------------------------------------
# The page on which a run's rollouts become preference pairs.

DEFAULT_GAP = 0.5


class PairsForm(forms.Form):
    """The new dataset's name, and the least difference of the two rewards."""

    min_gap = forms.FloatField(
        label=gettext_lazy("Minimum gap"),
        min_value=0,
        max_value=MAX_GAP,
        initial=DEFAULT_GAP,
        help_text=gettext_lazy("Reward of the better rollout minus that of the worse one. A small gap may be noise."),
    )
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=gettext_lazy("If the name exists, a new version is created; earlier versions do not change."),
    )

    def __init__(self, run: Run, data: Any = None) -> None:
        super().__init__(data)
        self.fields["name"].initial = f"{run.name[:73]}-pairs"


@login_required
@require_http_methods(["GET", "POST"])
def run_pairs(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Order pairs; they are made in the background, as a dataset."""
    project, run = own_run(request, slug, pk, need=Role.EDITOR)
    form = PairsForm(run, request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            made = pairs_order(run=run, user=cast(User, request.user), **form.cleaned_data)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            return redirect("dataset-detail", slug=slug, pk=made.pk)
    gaps = gaps_of(run)
    context = {"project": project, "run": run, "form": form, "problem": pairs_problem(run)}
    context |= {"groups": len(gaps), "counts": counts(gaps, BOUNDS)}
    return render(request, "runs/pairs.html", context, status=422 if form.errors else 200)
