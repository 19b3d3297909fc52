"""Pages of the reward lab: the rollout sets of a project, and the lab itself."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db.models import Exists, OuterRef, QuerySet
from django.forms.boundfield import BoundField
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from pydantic import BaseModel, ConfigDict, Field
from pydantic import ValidationError as ShapeError

from training.config import JobConfig, RewardComponent, name_in
from training.errors import DataError
from training.plain import number_in
from training.rewards.base import Component
from training.rewards.custom import CUSTOM
from training.rewards.scoring import COMPONENTS, FAMILIES, form_components, starting_components, validate_components
from webapp.common.errors import error_body
from webapp.common.fields import LinesField, error_sentence, fields_of
from webapp.common.ids import name_validator
from webapp.common.pages import add_errors, errors_by_field, newest_only, page_number
from webapp.common.text import in_words, translated
from webapp.common.words import failure
from webapp.people.teams.access import can_edit, object_for, own, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.rewards.lab import sets
from webapp.rewards.lab.script import (
    Components,
    Pending,
    RolloutRequest,
    ScoreRequest,
    lab_strings,
    rollout_reply,
    score_reply,
)
from webapp.rewards.lab.sets import rollout_sets_of
from webapp.rewards.models import RewardSpec, RolloutSet, SetKind, SetState
from webapp.rewards.selectors import ShapeForm, latest_specs, specs_of
from webapp.rewards.services import custom_refusal, reward_spec_save
from webapp.rewards.views import FAMILY_TITLES
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

# --- Forms ----------------------------------------------------------------------------------------------------------
# Forms of the lab: a new rollout set, and the fields with which a script edits the components of a spec.

MAX_STEP = 1_000_000
EXAMPLE = '[{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5"}]'
PLACE = "__id__"
"""A placeholder in the names of template fields, which a script replaces with the number of the component."""

OFFERED = 200
"""Runs that the form lists, the newest; a run's own page has a button that opens it here."""


class SetForm(forms.Form):
    """The source of a rollout set; the service decides whether it can be made."""

    kind = forms.ChoiceField(
        label=gettext_lazy("Rollouts from"), choices=SetKind.choices, initial=SetKind.RUN, widget=forms.RadioSelect
    )
    run = forms.ModelChoiceField(
        label=gettext_lazy("Run"), queryset=Run.objects.none(), required=False, empty_label=gettext_lazy("Choose a run")
    )
    first_step = forms.IntegerField(
        label=gettext_lazy("First step"),
        required=False,
        min_value=0,
        max_value=MAX_STEP,
        help_text=gettext_lazy("Empty: from the beginning."),
    )
    last_step = forms.IntegerField(
        label=gettext_lazy("Last step"),
        required=False,
        min_value=0,
        max_value=MAX_STEP,
        help_text=gettext_lazy("Empty: to the newest."),
    )
    text = forms.CharField(
        label=gettext_lazy("Conversations"),
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false", "class": "mono", "placeholder": EXAMPLE}),
        help_text=gettext_lazy("JSON: a list of messages or of conversations, or one conversation a line, up to 1 MB."),
    )
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        required=False,
        validators=[name_validator],
        help_text=gettext_lazy("Empty: named after its source."),
    )

    def __init__(self, *args: Any, runs: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        newest = list(runs.values_list("pk", flat=True)[:OFFERED])
        asked = (kwargs.get("initial") or {}).get("run")
        if not self.is_bound:  # what was sent may be any of them
            runs = runs.filter(pk__in={*newest, asked} - {None})
        self.fields["run"].queryset = runs.only("name")  # type: ignore[attr-defined]
        self.fields["run"].help_text = newest_only(len(newest), OFFERED)
        self.has_runs = bool(newest)
        if not self.has_runs:
            self.initial.setdefault("kind", SetKind.PASTED)


class ParamField(NamedTuple):
    """One parameter: its field, and as what a script reads it."""

    key: str
    kind: str
    field: BoundField


class Editor(NamedTuple):
    """The data for editing components of one registered function."""

    name: str
    title: str
    params: list[ParamField]
    has_code: bool = False


# A FloatField is an IntegerField to Python, so it comes first.
KINDS: tuple[tuple[type[forms.Field], str], ...] = (
    (LinesField, "lines"),
    (forms.FloatField, "number"),
    (forms.IntegerField, "integer"),
    (forms.BooleanField, "boolean"),
)


def _kind_of_field(field: forms.Field) -> str:
    return next((kind for known, kind in KINDS if isinstance(field, known)), "text")


def editor_of(component: Component) -> Editor:
    """The parameter fields of one registered component, as a template that a script copies."""
    form = forms.Form(prefix=PLACE)
    form.fields.update(fields_of(component.params))
    params = [ParamField(key, _kind_of_field(field), form[key]) for key, field in form.fields.items()]
    return Editor(component.name, _(component.title), params, component.name == CUSTOM)


def editors() -> list[tuple[str, list[Editor]]]:
    """The editors of all registered components by family."""
    return [(str(FAMILY_TITLES.get(key, key)), [editor_of(item) for item in items]) for key, items in FAMILIES.items()]


# --- Page -----------------------------------------------------------------------------------------------------------
# The contents of the lab's pages: runs that a set can be made of, specs to choose from, and the launch address.

MAX_SPECS = 60
MAX_NAME = 80
AS_LAUNCHED, STARTING = "run", "start"
"""Keys of the two choices that are not saved specs: the components of the set's run, and the usual start."""


class Choice(NamedTuple):
    """A spec that can be chosen in the lab; ``key`` is in the address."""

    key: str
    label: str
    name: str
    reference: str
    components: list[dict[str, Any]]


def runs_with_rollouts(project: Project) -> QuerySet[Run]:
    """Runs that a set can be made from, newest first."""
    recorded = Rollout.objects.filter(run=OuterRef("pk"))
    return Run.objects.filter(Exists(recorded), project=project).order_by("-created_at")


def choices_for(project: Project, rollout_set: RolloutSet, asked: list[str]) -> list[Choice]:
    """First the components of the set's run, then the newest version of each spec and those that the address names."""
    config = _config_of(rollout_set)
    own = _spec_named(project, config.rewards.spec) if config else None
    launched = _launched_components(rollout_set, config) if config and own is None else []
    found = {spec.pk: spec for spec in [*([own] if own else []), *latest_specs(project)[:MAX_SPECS]]}
    wanted = [key for key in map(_parse_uuid, asked) if key is not None and key not in found]
    found |= {spec.pk: spec for spec in specs_of(project).filter(pk__in=wanted)}
    as_launched = _("as launched by %(run)s") % {"run": rollout_set.run_name}
    first = [Choice(AS_LAUNCHED, as_launched, "", "", _components_json(launched))] if launched else []
    saved = [_choice_of(spec) for spec in found.values()]
    form = Choice(STARTING, _("the five tool-calling components"), "", "", _components_json(form_components()))
    if config is not None and own is None and not launched:  # runs without a spec were scored so before 0.2
        return [form, *saved]
    start = Choice(STARTING, _("the components of a new spec"), "", "", _components_json(starting_components()))
    return [*first, *saved, start]


def _launched_components(rollout_set: RolloutSet, config: JobConfig) -> list[RewardComponent]:
    """The components that the set's run was launched with: its own, else those that were filled in."""
    filled = config_of(rollout_set.run) if rollout_set.run is not None else None
    return config.rewards.components or (filled.rewards.components if filled is not None else [])


def _spec_named(project: Project, reference: str) -> RewardSpec | None:
    """The version that a run's config names."""
    name, _at, version = name_in("reward", reference).rpartition("@")
    number = number_in(version, 9)
    return None if number is None else specs_of(project).filter(name=name, version=number).first()


def _choice_of(spec: RewardSpec) -> Choice:
    return Choice(str(spec.pk), str(spec), spec.name, spec.reference, spec.components)


def spec_named(project: Project, key: str) -> RewardSpec | None:
    """The saved spec that an address names; ``None`` where it names none of this project."""
    found = _parse_uuid(key)
    return specs_of(project).filter(pk=found).first() if found else None


def _parse_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _config_of(rollout_set: RolloutSet) -> JobConfig | None:
    if rollout_set.run is None:
        return None
    try:
        return JobConfig.model_validate(rollout_set.run.config)
    except ShapeError:
        return None


def _components_json(components: list[RewardComponent]) -> list[dict[str, Any]]:
    return [part.model_dump(mode="json", exclude_defaults=True) | {"params": part.params} for part in components]


def chosen_of(choices: list[Choice], key: str) -> Choice:
    """The choice that the address names, else the first one."""
    return next((item for item in choices if item.key == key), choices[0])


def functions() -> dict[str, dict[str, Any]]:
    """The facts that a script needs of each registered component."""
    return {
        item.name: {
            "title": translated(item.title),
            "help": translated(item.help),
            "warning": translated(item.warning),
            "outside": item.outside,
            "weight": item.default_weight,
        }
        for item in COMPONENTS.values()
    }


def set_name(kind: str, run: Run | None, first: int | None, last: int | None) -> str:
    """A name for a set whose maker gave none: its source and steps."""
    if run is not None and kind == SetKind.RUN:
        steps = "" if first is None and last is None else f" {first or 0}-{'' if last is None else last}"
        return run.name[: MAX_NAME - len(steps)] + steps
    label = _("Test cases") if kind == SetKind.CASES else _("Pasted")
    return f"{label} {timezone.localtime():%Y-%m-%d %H-%M}"


def launch_address(project: Project, rollout_set: RolloutSet) -> str:
    """The form of a new run; of a set made from a run with all of that run's config, whose spec the page replaces."""
    config, run = _config_of(rollout_set), rollout_set.run
    known: dict[str, str] = {}
    if run is not None and config is not None and run.imported_from:  # its trainer's options are not ours
        known = {"dataset": config.data.train, "environment": config.environment.name, "model": config.model.source}
    elif run is not None and config is not None:
        known = {"from": str(run.pk)}
    given = urlencode({key: value for key, value in known.items() if value})
    return reverse("run-new", args=[project.slug]) + (f"?{given}" if given else "")


def problems_of(exc: ShapeError) -> dict[str, list[str]]:
    """The model's errors for posted components, by the place of the component; "" where it is about none."""
    found: dict[str, list[str]] = {}
    for error in exc.errors(include_url=False, include_input=False):
        place = error["loc"][1] if len(error["loc"]) > 1 and error["loc"][0] == "components" else ""
        found.setdefault(str(place), []).append(error_sentence(error))
    return found


# --- Api views ------------------------------------------------------------------------------------------------------
# The lab's two JSON answers: a set scored by a spec, and one rollout with what earned its reward.

R = TypeVar("R", bound=BaseModel)
MAX_BODY_BYTES = 512 * 1024


class _Refused(Exception):
    """An answer in the one error shape."""

    def __init__(self, status: int, code: str, message: str = "", detail: Any = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.detail = status, code, message, detail

    def answer(self, request: HttpRequest) -> JsonResponse:
        return JsonResponse(error_body(request, self.code, self.message, self.detail), status=self.status)


@login_required
@require_POST
def lab_score(request: HttpRequest, slug: str, pk: UUID) -> JsonResponse:
    """Score a set by the posted components; nothing is stored, so viewers may too.

    202 with ``computing`` while values are still being computed: the same request again finds them.
    """
    _project, found = own(request, slug, RolloutSet, pk, within=rollout_sets_of)
    try:
        asked = _posted_body(request, found, ScoreRequest)
        reply = score_reply(found, asked)
    except _Refused as exc:
        return exc.answer(request)
    except DataError as exc:
        return _Refused(410, "not_found", f"{in_words(exc.message)} {in_words(exc.hint)}").answer(request)
    if isinstance(reply, Pending):
        computing = {"components": reply.job.names, **reply.job.progress}
        return JsonResponse({"computing": computing}, status=202)
    return JsonResponse(reply, json_dumps_params={"allow_nan": False})


@login_required
@require_POST
def lab_rollout(request: HttpRequest, slug: str, pk: UUID, rollout: UUID) -> JsonResponse:
    """One rollout of a set with its messages, parts and the spans that earned them."""
    _project, found = own(request, slug, RolloutSet, pk, within=rollout_sets_of)
    try:
        reply = rollout_reply(found, rollout, _posted_body(request, found, RolloutRequest), cast(User, request.user))
    except _Refused as exc:
        return exc.answer(request)
    except DataError as exc:
        return _Refused(410, "not_found", f"{in_words(exc.message)} {in_words(exc.hint)}").answer(request)
    if reply is None:
        return _Refused(404, "not_found").answer(request)
    return JsonResponse(reply, json_dumps_params={"allow_nan": False})


def _posted_body(request: HttpRequest, found: RolloutSet, model: type[R]) -> R:
    """The posted body, if the set is ready and its components can score. Raises ``_Refused``."""
    if found.state != SetState.READY:
        raise _Refused(409, "conflict", _("This rollout set is not ready."))
    if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_BODY_BYTES:
        raise _Refused(413, "too_large")
    try:
        asked = model.model_validate_json(request.body)
    except ShapeError as exc:
        problems = exc.errors(include_url=False, include_input=False)
        detail = {".".join(map(str, error["loc"])): _(error_sentence(error)) for error in problems[:20]}
        raise _Refused(422, "invalid", detail=detail) from exc
    wrong = {
        name: found_wrong
        for name in ("components", "against")
        if (found_wrong := _component_problems(found.project, getattr(asked, name, None)))
    }
    if wrong:
        raise _Refused(422, "invalid", " ".join(text for texts in wrong.values() for text in texts), wrong)
    return asked


def _component_problems(project: Project, components: list[RewardComponent] | None) -> list[str]:
    """Why a set cannot be scored by these. Posted code runs only if it was tested in the project."""
    if not components:
        return []
    refusal = custom_refusal(project, components)
    return [in_words(text) for text in validate_components(components)] + ([refusal] if refusal else [])


SETS_PER_PAGE = 50


@login_required
@require_http_methods(["GET", "POST"])
def lab(request: HttpRequest, slug: str) -> HttpResponse:
    """The rollout sets of a project, and a form to make one."""
    if request.method == "POST":
        return _create_set(request, project_for(request.user, slug, need=Role.EDITOR))
    project = project_for(request.user, slug)
    if request.GET.get("run"):
        return _open_run(request, project, request.GET["run"])
    return _render_list(request, project, SetForm(runs=runs_with_rollouts(project)))


def _create_set(request: HttpRequest, project: Project) -> HttpResponse:
    form = SetForm(request.POST, runs=runs_with_rollouts(project))
    if form.is_valid():
        given = form.cleaned_data
        if not given["name"]:
            given["name"] = set_name(given["kind"], given["run"], given["first_step"], given["last_step"])
        try:
            made = sets.rollout_set_create(project=project, user=cast(User, request.user), **given)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            return _to_set(request, project, made)
    return _render_list(request, project, form, status=422)


def _open_run(request: HttpRequest, project: Project, key: str) -> HttpResponse:
    """Where a run's rollouts can be scored: the newest set of all groups of its steps, or one that is made now."""
    run = object_for(request.user, Run, key, within=Run.objects.filter(project=project).select_related("project"))
    found = sets.rollout_sets_of(project).filter(run=run, found_by="").exclude(state=SetState.FAILED).first()
    if found is not None:
        return _to_set(request, project, found)
    form = SetForm(runs=runs_with_rollouts(project), initial={"run": run.pk})
    if not can_edit(project):
        messages.info(request, _("No rollout set of %(run)s has been made yet; ask an editor.") % {"run": run.name})
        return _render_list(request, project, form)
    try:
        made = sets.rollout_set_create(
            project=project,
            user=cast(User, request.user),
            kind=SetKind.RUN,
            run=run,
            name=set_name(SetKind.RUN, run, None, None),
        )
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return _render_list(request, project, form)
    return _to_set(request, project, made)


def _to_set(request: HttpRequest, project: Project, rollout_set: RolloutSet) -> HttpResponse:
    spec = spec_named(project, request.GET.get("spec", ""))
    kept = f"?spec={spec.pk}" if spec else ""
    return redirect(reverse("lab-set", args=[project.slug, rollout_set.pk]) + kept)


def _render_list(request: HttpRequest, project: Project, form: SetForm, status: int = 200) -> HttpResponse:
    rows = sets.rollout_sets_of(project).select_related(None).select_related("created_by")
    found = Paginator(rows, SETS_PER_PAGE)
    shown = found.get_page(page_number(request.GET.get("page")))
    context = {
        "project": project,
        "page": shown,
        "form": form,
        "can_edit": can_edit(project),
        "rows": [(item, sets.percent_of(item)) for item in shown],
        "building": any(item.state == SetState.BUILDING for item in shown),
        "spec": spec_named(project, request.GET.get("spec", "")),
    }
    return render(request, "rewards/lab/list.html", context, status=status)


@login_required
@require_GET
def lab_set(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The lab; while the set is built its progress, and what to do when that failed."""
    project, rollout_set = own(request, slug, RolloutSet, pk, within=rollout_sets_of)
    context = _state_context(rollout_set) | {"project": project, "can_edit": can_edit(project)}
    if rollout_set.state != SetState.READY:
        return render(request, "rewards/lab/waiting.html", context)
    asked = [request.GET.get("spec", ""), request.GET.get("against", "")]
    choices = choices_for(project, rollout_set, asked)
    chosen = chosen_of(choices, asked[0])
    spec = spec_named(project, chosen.key)
    context |= {
        "choices": choices,
        "chosen": chosen,
        "spec": spec,
        "shape": ShapeForm(prefix=PLACE),
        "editors": editors(),
        "strings": lab_strings(),
        "facts": _script_facts(project, rollout_set, choices, chosen),
    }
    return render(request, "rewards/lab/set.html", context)


def _script_facts(project: Project, rollout_set: RolloutSet, choices: list[Choice], chosen: Choice) -> dict[str, Any]:
    """The data that the page's script starts with."""
    of_set = [project.slug, rollout_set.pk]
    no_id = UUID(int=0)
    return {
        "set": {"id": str(rollout_set.pk), "rollouts": rollout_set.rollouts, "groups": rollout_set.groups},
        "spec": chosen.key,
        "choices": [item._asdict() for item in choices],
        "functions": functions(),
        "can_edit": can_edit(project),
        "urls": {
            "score": reverse("lab-score", args=of_set),
            "save": reverse("lab-save", args=[project.slug]),
            "rollout": reverse("lab-rollout", args=[*of_set, no_id]).removesuffix(f"{no_id}/"),
            "recorded": reverse("rollout-detail", args=[project.slug, no_id]).removesuffix(f"{no_id}/")
            if rollout_set.run
            else None,
            "launch": launch_address(project, rollout_set),
        },
    }


def _state_context(rollout_set: RolloutSet) -> dict[str, Any]:
    """The context of the changing part of the page."""
    return {
        "set": rollout_set,
        "percent": sets.percent_of(rollout_set),
        "States": SetState,
        "failure": failure(rollout_set.error),
    }


@login_required
@require_GET
def lab_set_progress(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The progress of the building, as a fragment; makes HTMX load the page again once it has ended."""
    project, rollout_set = own(request, slug, RolloutSet, pk, within=rollout_sets_of)
    response = render(request, "rewards/lab/_progress.html", _state_context(rollout_set) | {"project": project})
    if rollout_set.state != SetState.BUILDING:
        response["HX-Refresh"] = "true"
    return response


@login_required
@require_POST
def lab_set_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete a set; the run that it was made of keeps its rollouts."""
    project, rollout_set = own(request, slug, RolloutSet, pk, need=Role.EDITOR, within=rollout_sets_of)
    try:
        sets.rollout_set_delete(rollout_set=rollout_set)
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
    else:
        messages.success(request, _("The rollout set %(name)s was deleted.") % {"name": rollout_set})
    return redirect("lab", slug=project.slug)


class SaveRequest(BaseModel):
    """A spec as the lab's page sends it."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=200)
    components: Components


@login_required
@require_POST
def lab_save(request: HttpRequest, slug: str) -> JsonResponse:
    """Save the changes made in the lab as the next version of a spec."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    try:
        asked = SaveRequest.model_validate_json(request.body)
        spec = reward_spec_save(
            project=project, user=cast(User, request.user), name=asked.name, components=asked.components
        )
    except ShapeError as exc:
        return JsonResponse(error_body(request, "invalid", detail=problems_of(exc)), status=422)
    except ValidationError as exc:
        found = errors_by_field(exc)
        sentence = " ".join(text for texts in found.values() for text in texts)
        return JsonResponse(error_body(request, "invalid", sentence, found), status=422)
    return JsonResponse({"ok": True, "key": str(spec.pk), "label": str(spec), "reference": spec.reference})
