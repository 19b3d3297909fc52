"""Pages of reward specs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.core.paginator import Paginator
from django.forms.boundfield import BoundField
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from pydantic import ValidationError as ShapeError

from training.config import RewardComponent
from training.errors import ScorerDied
from training.rewards.base import Component
from training.rewards.custom import CUSTOM, code_hash
from training.rewards.scoring import COMPONENTS, FAMILIES, starting_components
from training.words import option_of
from webapp.common.errors import TooMany
from webapp.common.fields import error_sentence, fields_of
from webapp.common.ids import name_validator
from webapp.common.pages import add_errors, page_number
from webapp.people.teams.access import can_edit, own, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.people.teams.services import custom_rewards_on
from webapp.rewards import cases, selectors, services
from webapp.rewards.cases import paid_for
from webapp.rewards.models import RewardCase, RewardSpec
from webapp.rewards.selectors import ShapeForm, shape_lines

# --- Forms ----------------------------------------------------------------------------------------------------------
# The form of a reward spec: every known component with a switch, a weight and its parameters.


@dataclass(frozen=True)
class ComponentFields:
    """The fields of one component, for the template."""

    name: str
    title: str
    help: str
    on: BoundField
    weight: BoundField
    params: list[BoundField]
    changed: bool
    function: str = ""
    sha256: str = ""
    shape: ShapeForm | None = None
    shaped: int = 0

    @property
    def shape_wrong(self) -> bool:
        """Whether the sent fields of its shape have an error."""
        return self.shape is not None and self.shape.is_bound and not self.shape.is_valid()


class Family(NamedTuple):
    """Components that belong together; a family without a chosen one is folded."""

    title: str
    parts: list[ComponentFields]
    chosen: int
    open: bool
    custom: bool = False


FAMILY_TITLES = {
    "tool_calling": gettext_lazy("Tool calling"),
    "outcome": gettext_lazy("The environment's own reward"),
    "toolbench": gettext_lazy("ToolBench"),
    "bfcl": gettext_lazy("BFCL and EnvTuning"),
    "webshop": gettext_lazy("WebShop"),
    "helloagents": gettext_lazy("HelloAgents"),
    "general": gettext_lazy("Matches and budgets"),
    "judge": gettext_lazy("A model as judge"),
    "model_based": gettext_lazy("A reward model"),
    "custom": gettext_lazy("Your own Python"),
}
ALWAYS_OPEN, CUSTOM_FAMILY = "outcome", "custom"
COMPONENT_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
MAX_EXTRAS = 50


class Slot(NamedTuple):
    """One component of the form: the name that its fields begin with, and the function behind it."""

    name: str
    component: Component
    own_name: bool


def addable() -> dict[str, str]:
    """Functions that a spec may use more than once: all but those that only pass the environment's verdict on."""
    return {
        item.name: _(item.title) for item in COMPONENTS.values() if item.params.model_fields and item.name != CUSTOM
    }


def _extra_components(data: QueryDict) -> dict[str, str]:
    """Components under names of their own, as a browser sends them; invalid ones are left out."""
    found = {}
    for text in data.getlist("extra")[:MAX_EXTRAS]:
        name, _colon, function = text.partition(":")
        if COMPONENT_NAME.match(name) and name not in COMPONENTS and function in COMPONENTS:
            found[name] = function
    return found


class RewardSpecForm(forms.Form):
    """Fields are named ``<name>.on``, ``<name>.weight`` and ``<name>.params.<parameter>``.

    A component that is part of the spec also has a ``ShapeForm``; ``<name>.shape`` says that its fields were sent.
    Each registered function has a slot under its own name. Components that use a function under another name (a second
    judge, custom code) have slots of their own; a browser says which those are in ``extra``, as ``<name>:<function>``.
    """

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=gettext_lazy("Name that runs of this project use for it. An existing name gets a new version."),
    )

    def __init__(
        self, data: QueryDict | None = None, *, components: list[RewardComponent] | None = None, **kwargs: Any
    ) -> None:
        chosen = {part.name: part for part in (starting_components() if components is None else components)}
        self._start = chosen
        self._more = {name: part.registered for name, part in chosen.items() if part.registered != name}
        self.add_problem = self.add_name = self.add_function = ""
        if data is not None:
            self._more |= _extra_components(data)
            if "add" in data:
                data = self._with_added(data)
        super().__init__(data, **kwargs)
        self._slots = self._make_slots()
        for slot in self._slots:
            self._make_fields(slot, chosen.get(slot.name))
        self._shapes = self._make_shapes()

    def _make_slots(self) -> list[Slot]:
        slots = []
        for family in FAMILIES.values():
            for item in family:
                # Custom code is written on a page of its own, so its function has a slot only once there is some.
                if item.name not in self._more and (item.name != CUSTOM or item.name in self._start):
                    slots.append(Slot(item.name, item, False))
                slots += [Slot(name, item, True) for name, function in self._more.items() if function == item.name]
        return slots

    def _make_fields(self, slot: Slot, part: RewardComponent | None) -> None:
        name, component = slot.name, slot.component
        self.fields[f"{name}.on"] = forms.BooleanField(
            required=False, initial=part is not None, label=_(component.title)
        )
        self.fields[f"{name}.weight"] = forms.FloatField(
            label=_("Weight"),
            required=False,
            min_value=-100,
            max_value=100,
            initial=part.weight if part else component.default_weight,
            widget=forms.NumberInput(attrs={"step": "any"}),
        )
        for key, field in fields_of(component.params).items():
            if part and key in part.params:
                field.initial = part.params[key]
            self.fields[f"{name}.params.{key}"] = field

    def _make_shapes(self) -> dict[str, ShapeForm]:
        titles = {
            slot.name: _(slot.component.title)
            for slot in self._slots
            if slot.name in self._start or (self.is_bound and self.data.get(f"{slot.name}.on"))
        }
        shapes = {}
        for name in titles:
            others = [(other, title) for other, title in titles.items() if other != name]
            sent = self.data if self.is_bound and f"{name}.shape" in self.data else None
            initial = ShapeForm.initial_of(self._start[name]) if name in self._start else {}
            shapes[name] = ShapeForm(sent, prefix=f"{name}.shape", initial=initial, others=others)
        return shapes

    def _with_added(self, data: QueryDict) -> QueryDict:
        """The data with one more component, switched on, with its defaults; or a sentence on why it cannot be added."""
        name, function = data.get("add.name", "").strip(), data.get("add.function", "")
        self.add_function = function
        if function not in addable():
            self.add_problem = _("Choose what the new component computes.")
        elif not COMPONENT_NAME.match(name):
            self.add_problem = _("A name has small letters, digits and underscores, and begins with a letter.")
        elif name in COMPONENTS or name in self._more:
            self.add_problem = _("There is a component “%(name)s” already.") % {"name": name}
        if self.add_problem:
            self.add_name = name[:64]
            return data
        self._more[name] = function
        data = data.copy()
        data[f"{name}.on"], data[f"{name}.weight"] = "on", f"{COMPONENTS[function].default_weight:g}"
        for key, field in fields_of(COMPONENTS[function].params).items():
            value = field.prepare_value(field.initial) if isinstance(field, forms.CharField) else field.initial
            if value not in (None, False):
                data[f"{name}.params.{key}"] = str(value)
        return data

    @property
    def extras(self) -> list[str]:
        """The values that the browser sends back so that added components are known."""
        return [f"{name}:{function}" for name, function in self._more.items()]

    def families(self) -> Iterator[Family]:
        """The families for the template, in the registry's order."""
        for family, components in FAMILIES.items():
            parts = [self._fields_of(slot) for slot in self._slots if slot.component in components]
            chosen = sum(bool(part.on.value()) for part in parts)
            wrong = any(part.changed or part.weight.errors or part.on.errors or part.shape_wrong for part in parts)
            title = str(FAMILY_TITLES.get(family, family))
            yield Family(title, parts, chosen, bool(chosen) or wrong or family == ALWAYS_OPEN, family == CUSTOM_FAMILY)

    def _fields_of(self, slot: Slot) -> ComponentFields:
        prefix, component = f"{slot.name}.params.", slot.component
        params = [self[key] for key in self.fields if key.startswith(prefix)]
        changed = any(self.errors.get(field.name) for field in params) if self.is_bound else False
        explained = " ".join(_(text) for text in (component.help, component.warning) if text)
        code = str(self._start[slot.name].params.get("code", "")) if slot.name in self._start else ""
        return ComponentFields(
            slot.name,
            _(component.title),
            explained,
            self[f"{slot.name}.on"],
            self[f"{slot.name}.weight"],
            params,
            changed,
            component.name if slot.own_name else "",
            code_hash(code) if code else "",
            self._shapes.get(slot.name),
            len(shape_lines(self._start[slot.name], {})) if slot.name in self._start else 0,
        )

    def clean(self) -> dict[str, Any]:
        """Make the components; each error of the models is shown next to its field."""
        cleaned = super().clean() or {}
        if not self.errors:
            found = [part for slot in self._slots if (part := self._component(slot, cleaned))]
            # In the stored order, so that saving without a change changes nothing.
            place = {name: number for number, name in enumerate(self._start)}
            cleaned["components"] = sorted(found, key=lambda part: place.get(part.name, len(place)))
        return cleaned

    def _component(self, slot: Slot, cleaned: dict[str, Any]) -> RewardComponent | None:
        name = slot.name
        if not cleaned.get(f"{name}.on"):
            return None
        if cleaned.get(f"{name}.weight") is None:
            self.add_error(f"{name}.weight", _("A component that is switched on needs a weight."))
            return None
        prefix = f"{name}.params."
        function = slot.component.name if slot.own_name else ""
        shape = self._shapes.get(name)
        if shape is not None and shape.is_bound and not shape.is_valid():
            self.add_error(None, _("%(title)s: check the shaping of its value.") % {"title": _(slot.component.title)})
            return None
        # What the form does not show (code) or was not sent stays as it was.
        start = self._start.get(name) or RewardComponent(name=name, function=function, weight=1)
        shaped = shape.part_fields() if shape is not None and shape.is_bound else {}
        hidden = {key: value for key, value in start.params.items() if prefix + key not in self.fields}
        params = {key.removeprefix(prefix): cleaned[key] for key in self.fields if key.startswith(prefix)}
        try:
            slot.component.params.model_validate(hidden | params)
            changes = {"weight": cleaned[f"{name}.weight"], "params": hidden | params, **shaped}
            return start.model_copy(update=changes)
        except ShapeError as exc:
            for error in exc.errors(include_url=False, include_input=False):
                self._place_error(prefix, error)
            return None

    def _place_error(self, prefix: str, error: Any) -> None:
        """Show a model's error next to its parameter."""
        field = prefix + option_of(error).split(".")[0]
        self.add_error(field if field in self.fields else None, error_sentence(error) or NON_FIELD_ERRORS)


class TryForm(forms.Form):
    """A conversation to score."""

    conversation = forms.CharField(
        label=gettext_lazy("Conversation"),
        max_length=70_000,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 10, "spellcheck": "false"}),
        help_text=gettext_lazy("JSON: a list of messages with role and content, up to 64 KB."),
    )


ROWS_PER_PAGE = 50


def _components_of(spec: RewardSpec) -> list[RewardComponent]:
    return [RewardComponent.model_validate(part) for part in spec.components]


@login_required
@require_GET
def reward_list(request: HttpRequest, slug: str) -> HttpResponse:
    """The newest version of every spec."""
    project = project_for(request.user, slug)
    page = Paginator(selectors.latest_specs(project), ROWS_PER_PAGE).get_page(page_number(request.GET.get("page")))
    rows = [(spec, selectors.parts_of(spec)) for spec in page]
    context = {"project": project, "page": page, "rows": rows, "can_edit": can_edit(project)}
    return render(request, "rewards/list.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def reward_new(request: HttpRequest, slug: str) -> HttpResponse:
    """A new spec; starts with task success and the five components of tool calling."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    return _edit_spec(request, project, None)


@login_required
@require_http_methods(["GET", "POST"])
def reward_edit(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Make the next version from this one."""
    project, spec = own(request, slug, RewardSpec, pk, need=Role.EDITOR, within=selectors.specs_of)
    return _edit_spec(request, project, spec)


def _edit_spec(request: HttpRequest, project: Project, spec: RewardSpec | None) -> HttpResponse:
    start = _components_of(spec) if spec else None
    data = request.POST if request.method == "POST" else None
    form = RewardSpecForm(data, components=start, initial={"name": spec.name if spec else ""})
    context = {"project": project, "form": form, "spec": spec, "addable": addable(), "custom_on": custom_rewards_on()}
    context["paid"] = paid_for(project, start) if start else None
    if data is None or "add" in data:
        return render(request, "rewards/edit.html", context, status=422 if form.add_problem else 200)
    if form.is_valid():
        try:
            saved = services.reward_spec_save(
                project=project,
                user=cast(User, request.user),
                name=form.cleaned_data["name"],
                components=form.cleaned_data["components"],
            )
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            unchanged = spec is not None and saved.pk == spec.pk
            text = (
                _("Nothing changed, so there is no new version of %(name)s.") if unchanged else _("%(name)s is saved.")
            )
            messages.success(request, text % {"name": saved})
            return redirect("reward-detail", slug=project.slug, pk=saved.pk)
    return render(request, "rewards/edit.html", context, status=422)


def _detail_context(request: HttpRequest, project: Project, spec: RewardSpec, **more: Any) -> dict[str, Any]:
    versions = list(selectors.versions_of(spec)[:50])
    older = next((item for item in versions if item.version < spec.version), None)
    compared = next((item for item in versions if str(item.version) == request.GET.get("against")), older)
    changes = selectors.changes_between(compared, spec) if compared and compared.pk != spec.pk else []
    return {
        "project": project,
        "spec": spec,
        "parts": selectors.parts_of(spec),
        "paid": paid_for(project, _components_of(spec)),
        "versions": versions,
        "compared": compared if compared and compared.pk != spec.pk else None,
        "changes": changes,
        "runs": selectors.runs_using(spec).order_by("-created_at")[:20],
        "can_edit": can_edit(project),
        "try_form": TryForm(),
        "cases": SimpleLazyObject(lambda: cases.cases_under(spec, cast(User, request.user))),
        **more,
    }


@login_required
@require_GET
def reward_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """One version: its components, what it changed, who uses it, and a box to try it."""
    project, spec = own(request, slug, RewardSpec, pk, within=selectors.specs_of)
    return render(request, "rewards/detail.html", _detail_context(request, project, spec))


@login_required
@require_POST
def reward_try(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Score a pasted conversation. Nothing is stored, so viewers may too."""
    project, spec = own(request, slug, RewardSpec, pk, within=selectors.specs_of)
    form, tried, wait_s = TryForm(request.POST), None, 0
    if form.is_valid():
        try:
            user, text = cast(User, request.user), form.cleaned_data["conversation"]
            tried = services.reward_try(user=user, components=_components_of(spec), text=text)
        except ValidationError as exc:
            form.add_error("conversation", exc)
        except ScorerDied as exc:
            form.add_error("conversation", exc.message)
        except TooMany as exc:
            form.add_error("conversation", str(exc))
            wait_s = exc.wait_s
    context = _detail_context(request, project, spec, try_form=form, tried=tried)
    name = "rewards/_tried.html" if request.headers.get("HX-Request") == "true" else "rewards/detail.html"
    # HTMX swaps only successful answers, and the fragment carries its own errors.
    failed = tried is None and name == "rewards/detail.html"
    answer = render(request, name, context, status=(429 if wait_s else 422) if failed else 200)
    if wait_s:
        answer["Retry-After"] = str(wait_s)
    return answer


@login_required
@require_POST
def reward_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete one version."""
    _project, spec = own(request, slug, RewardSpec, pk, need=Role.EDITOR, within=selectors.specs_of)
    try:
        services.reward_spec_delete(spec=spec)
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return redirect("reward-detail", slug=slug, pk=pk)
    messages.success(request, _("%(name)s was deleted.") % {"name": spec})
    return redirect("reward-list", slug=slug)


@login_required
@require_POST
def reward_case_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete one test case; back to the page that showed it."""
    project, case = own(request, slug, RewardCase, pk, need=Role.EDITOR, within=cases.cases_of)
    cases.reward_case_delete(case=case)
    messages.success(request, _("The test case %(name)s was deleted.") % {"name": case.name})
    spec = selectors.specs_of(project).filter(pk=_parse_uuid(request.POST.get("spec"))).first()
    if spec is None:
        return redirect("reward-list", slug=slug)
    return redirect("reward-detail", slug=slug, pk=spec.pk)


def _parse_uuid(text: str | None) -> UUID:
    """The id that a form sent; the zero id where it is none."""
    try:
        return UUID(text or "")
    except ValueError:
        return UUID(int=0)
