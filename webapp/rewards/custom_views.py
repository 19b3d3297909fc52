"""Pages of the editor of a reward in Python: write, test, save. Every step asks whether custom rewards are on."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST
from pydantic import ValidationError as ShapeError

from training.config import RewardComponent
from training.rewards.custom import CUSTOM, MAX_CODE_CHARS, MODULES, CustomParams
from training.rewards.scoring import COMPONENTS
from webapp.common.fields import error_sentence, fields_of
from webapp.common.ids import name_validator
from webapp.common.pages import add_errors, probe_allowed
from webapp.people.teams.access import project_for
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, Role, User
from webapp.people.teams.services import custom_rewards_on
from webapp.rewards.custom import BY_KEY, EXAMPLES, Tested, code_test, runs_offered, samples_of
from webapp.rewards.selectors import latest_specs, specs_of
from webapp.rewards.services import reward_spec_save
from webapp.rewards.views import COMPONENT_NAME

# --- Forms ----------------------------------------------------------------------------------------------------------
# The editor's form: the code, its limits, the episodes to test it on, and the spec that it becomes a part of.

CODE = forms.Textarea(
    attrs={
        "rows": 16,
        "class": "input code-text",
        "spellcheck": "false",
        "autocapitalize": "none",
        "autocomplete": "off",
        "wrap": "off",
        "data-code": "",
    }
)


class CodeForm(forms.Form):
    """The fields that a test needs."""

    code = forms.CharField(
        label=gettext_lazy("Code"),
        max_length=MAX_CODE_CHARS,
        strip=False,
        widget=CODE,
        help_text=gettext_lazy("Tab indents; Escape, then Tab leaves the box."),
    )
    source = forms.ChoiceField(
        label=gettext_lazy("Test it on"),
        help_text=gettext_lazy("Code can be saved once it ran on at least one rollout without an error."),
    )
    pasted = forms.CharField(
        label=gettext_lazy("Pasted episodes"),
        max_length=70_000,
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false"}),
        help_text=gettext_lazy(
            'JSON: a list of messages, or {"messages": […], "row": {…}, "env_reward": 1}, or a list of these.'
        ),
    )

    def __init__(self, *args: Any, project: Project, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.project = project
        self.params: CustomParams | None = None
        for key, field in fields_of(CustomParams).items():
            self.fields[key] = field
        source = self.fields["source"]
        assert isinstance(source, forms.ChoiceField)  # noqa: S101 - for the type checker
        source.choices = [
            *((f"run:{run.pk}", _("Rollouts of %(run)s") % {"run": run.name}) for run in runs_offered(project)),
            ("cases", _("Reward test cases of this project")),
            ("pasted", _("Pasted episodes, below")),
        ]
        source.initial = source.choices[0][0]  # type: ignore[index]

    def clean_code(self) -> str:
        """Browsers send CRLF; the code that is hashed, run and stored has plain line ends."""
        return str(self.cleaned_data["code"]).replace("\r\n", "\n").replace("\r", "\n")

    def clean(self) -> dict[str, Any]:
        """Make the parameters."""
        cleaned = super().clean() or {}
        if self.errors:
            return cleaned
        given = {key: cleaned[key] for key in ("code", "low", "high", "limit_s")}
        try:
            self.params = CustomParams.model_validate(given)
        except ShapeError as exc:
            error = exc.errors(include_url=False, include_input=False)[0]
            self.add_error("low", error_sentence(error).removeprefix("low: "))
        return cleaned


class CustomRewardForm(CodeForm):
    """Also the fields that saving needs."""

    name = forms.CharField(
        label=gettext_lazy("Name of the component"),
        max_length=64,
        help_text=gettext_lazy("Small letters, digits and underscores; charts and rollouts show it."),
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocapitalize": "none", "autocomplete": "off"}),
    )
    weight = forms.FloatField(
        label=gettext_lazy("Weight"),
        min_value=-100,
        max_value=100,
        initial=1.0,
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    spec = forms.ChoiceField(
        label=gettext_lazy("Reward spec"),
        required=False,
        help_text=gettext_lazy("Its next version gets this component; runs that use it do not change."),
    )
    spec_name = forms.CharField(
        label=gettext_lazy("Name of the new spec"), max_length=80, required=False, validators=[name_validator]
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        spec = self.fields["spec"]
        assert isinstance(spec, forms.ChoiceField)  # noqa: S101 - for the type checker
        self.specs = {item.name: item for item in latest_specs(self.project)}
        spec.choices = [("", _("— a new one —")), *((name, str(item)) for name, item in self.specs.items())]

    def clean_name(self) -> str:
        """Require a name that no registered component has."""
        name = str(self.cleaned_data["name"]).strip()
        if not COMPONENT_NAME.match(name):
            raise forms.ValidationError(
                _("A name has small letters, digits and underscores, and begins with a letter.")
            )
        if name in COMPONENTS:
            raise forms.ValidationError(_("There is a component “%(name)s” already.") % {"name": name})
        return name

    def clean(self) -> dict[str, Any]:
        """Require a spec, old or new, in which the name is free or belongs to custom code."""
        cleaned = super().clean()
        chosen = self.specs.get(cleaned.get("spec", ""))
        if chosen is None and not cleaned.get("spec_name"):
            self.add_error("spec_name", _("Name the new reward spec, or choose one."))
        for part in self.parts():
            if part.name == cleaned.get("name") and part.registered != CUSTOM:
                self.add_error("name", _("There is a component “%(name)s” already.") % {"name": part.name})
        return cleaned

    def parts(self) -> list[RewardComponent]:
        """The components of the chosen spec's newest version."""
        chosen = self.specs.get(self.cleaned_data.get("spec", ""))
        return [RewardComponent.model_validate(item) for item in chosen.components] if chosen else []

    def components(self) -> list[RewardComponent]:
        """Those with the new code among them, in its old place where there was one."""
        name, weight = self.cleaned_data["name"], self.cleaned_data["weight"]
        params = self.params.model_dump(mode="json") if self.params else {}
        parts = self.parts()
        old = next((part for part in parts if part.name == name), None)
        made = (old or RewardComponent(name=name, function=CUSTOM, weight=weight)).model_copy(
            update={"weight": weight, "params": params}
        )
        return [made if part is old else part for part in parts] + ([] if old else [made])


def _require_on() -> None:
    if not custom_rewards_on():
        raise PermissionDenied(_("Custom rewards are off. An administrator of this installation switches them on."))


def _editor_start(request: HttpRequest, project: Project) -> dict[str, Any]:
    """The editor's initial values: an example, or the code of a component of a spec of this project."""
    example = BY_KEY.get(request.GET.get("example", ""), EXAMPLES[0])
    start: dict[str, Any] = {"code": example.code, "name": f"my_{example.key}"}
    try:
        spec = specs_of(project).filter(pk=UUID(request.GET.get("spec", ""))).first()
    except ValueError:
        spec = None
    if spec is None:
        return start
    start["spec"] = spec.name
    part = next((item for item in spec.components if item["name"] == request.GET.get("part")), None)
    if part is not None and (part.get("function") or part["name"]) == CUSTOM:
        start |= {"name": part["name"], "weight": part["weight"], **part["params"]}
    return start


def _editor_page(
    request: HttpRequest, project: Project, form: CodeForm, *, status: int = 200, **more: Any
) -> HttpResponse:
    context = {
        "project": project,
        "form": form,
        "examples": EXAMPLES,
        "modules": MODULES,
        "on": custom_rewards_on(),
        **more,
    }
    return render(request, "rewards/custom.html", context, status=status)


@login_required
@require_http_methods(["GET", "POST"])
def custom_edit(request: HttpRequest, slug: str) -> HttpResponse:
    """The editor; saving takes only code that was tested without an error, known by its hash."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    if request.method == "GET":
        return _editor_page(
            request, project, CustomRewardForm(project=project, initial=_editor_start(request, project))
        )
    _require_on()
    form = CustomRewardForm(request.POST, project=project)
    if form.is_valid():
        user = cast(User, request.user)
        name = form.cleaned_data["spec"] or form.cleaned_data["spec_name"]
        try:
            spec = reward_spec_save(project=project, user=user, name=name, components=form.components())
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            sha256 = form.params.sha256 if form.params else ""
            audit(AuditAction.CODE_SAVED, subject=sha256, project=project)
            messages.success(request, _("%(name)s is saved.") % {"name": spec})
            return redirect("reward-detail", slug=slug, pk=spec.pk)
    return _editor_page(request, project, form, status=422)


@login_required
@require_POST
def custom_try(request: HttpRequest, slug: str) -> HttpResponse:
    """Run the code on rollouts; a test without an error is noted, and its code can be saved from then on."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    _require_on()
    form, tested = CodeForm(request.POST, project=project), None
    if form.is_valid():
        tested = _run_test(request, project, form)
    if request.headers.get("HX-Request") == "true":
        return render(request, "rewards/_custom_tested.html", {"form": form, "tested": tested})
    whole = CustomRewardForm(request.POST, project=project)
    for name, errors in form.errors.items():
        whole.errors[name] = errors
    return _editor_page(request, project, whole, tested=tested, status=200 if tested else 422)


def _run_test(request: HttpRequest, project: Project, form: CodeForm) -> Tested | None:
    user, cleaned = cast(User, request.user), form.cleaned_data
    if form.params is None:
        return None
    try:
        if not probe_allowed(user):
            raise ValidationError(_("Too many tests in one minute. Wait a moment."))
        tested = code_test(form.params, samples_of(project, cleaned["source"], cleaned["pasted"]))
    except ValidationError as exc:
        add_errors(form, exc)
        return None
    if tested.passed:
        audit(AuditAction.CODE_TESTED, subject=tested.sha256, project=project)
    return tested
