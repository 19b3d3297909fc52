"""The page of a project's rules of the run doctor: members read it, owners change it."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.forms.boundfield import BoundField
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from training.doctor import RULES, SEVERITIES, DoctorOptions
from webapp.common.fields import fields_of
from webapp.common.pages import add_errors
from webapp.common.text import translated
from webapp.engine.doctor import REACTION, Rules, rules_change, rules_of
from webapp.people.teams.access import project_for
from webapp.people.teams.models import Role, User
from webapp.runs.advisories.models import DoctorRules, Reaction

# --- Forms ----------------------------------------------------------------------------------------------------------
# The form of a project's rules: an empty threshold has its default.

USERS = {name: [rule for rule in RULES.values() if name in rule.options] for name in DoctorOptions.model_fields}
"""The advisories that read a threshold; none for one that all read."""
MOST_NAMED = 4  # of them


class Threshold(NamedTuple):
    """A threshold for the template; ``changed`` where it differs from its default, ``users`` if they are a few."""

    field: BoundField
    unit: str
    default: str
    changed: bool
    users: list[str]


class RuleRow(NamedTuple):
    """An advisory with the settings that a project has for it."""

    code: str
    title: str
    severity: str
    severity_title: str
    meaning: str
    thresholds: list[Threshold]
    reaction: BoundField


class RulesForm(forms.Form):
    """Every threshold of the doctor, and what follows from each advisory."""

    use_required_attribute = False

    def __init__(self, data: Any = None, *, rules: Rules, fixed: bool = False) -> None:
        super().__init__(data)
        for name, field in fields_of(DoctorOptions).items():
            value = getattr(rules.options, name)
            field.required, field.disabled = False, fixed
            field.initial = value if value != _default_threshold(name) else None
            field.widget.attrs["placeholder"] = f"{_default_threshold(name):g}"
            self.fields[name] = field
        self.fields["resumes"] = forms.BooleanField(
            initial=rules.resumes,
            disabled=fixed,
            required=False,
            label=_("Runs continue by themselves once the cause of the pause is over"),
            help_text=_(
                "For example a full disk, an environment or an endpoint that did not answer, a daily limit, or a "
                "sampler that died. Each retry waits longer, and after a few of them a day a person has to look."
            ),
        )
        for code in RULES:
            self.fields[REACTION + code] = forms.ChoiceField(
                choices=Reaction.choices,
                initial=rules.reaction(code),
                disabled=fixed,
                required=False,
                label=_("Action"),
            )

    def full_clean(self) -> None:
        """Clean the form, and set the focus to the first field with an error."""
        super().full_clean()
        if wrong := next((name for name in self.fields if name in (self.errors if self.is_bound else ())), None):
            self.fields[wrong].widget.attrs["autofocus"] = True

    @property
    def thresholds(self) -> dict[str, float | None]:
        """The thresholds as entered; ``None`` is the default."""
        return {name: self.cleaned_data[name] for name in DoctorOptions.model_fields}

    @property
    def reactions(self) -> dict[str, str]:
        """The chosen reactions, by the advisory's code."""
        return {code: self.cleaned_data[REACTION + code] or Reaction.NOTIFY for code in RULES}

    def common(self) -> list[Threshold]:
        """The thresholds of more than one advisory. Each has one field: of two with one name the last would win."""
        return [self._threshold(name) for name, users in USERS.items() if len(users) != 1]

    def rows(self) -> list[RuleRow]:
        """The advisories in the order of docs/doctor.md."""
        return [
            RuleRow(
                code=code,
                title=translated(rule.title),
                severity=rule.severity,
                severity_title=translated(SEVERITIES[rule.severity]),
                meaning=translated(rule.meaning),
                thresholds=[self._threshold(name) for name in rule.options if len(USERS[name]) == 1],
                reaction=self[REACTION + code],
            )
            for code, rule in RULES.items()
        ]

    def _threshold(self, name: str) -> Threshold:
        extra = DoctorOptions.model_fields[name].json_schema_extra
        unit = str(extra.get("unit", "")) if isinstance(extra, dict) else ""
        field = self[name]
        users = [translated(rule.title) for rule in USERS[name]]
        named = users if 1 < len(users) <= MOST_NAMED else []
        default = f"{_default_threshold(name):g}"
        return Threshold(field, translated(unit), default, field.value() not in (None, ""), named)


def _default_threshold(name: str) -> float:
    return float(DoctorOptions.model_fields[name].default)


@login_required
@require_http_methods(["GET", "POST"])
def doctor_rules(request: HttpRequest, slug: str) -> HttpResponse:
    """The thresholds, and what follows from each advisory."""
    posted = request.method == "POST"
    project = project_for(request.user, slug, need=Role.OWNER if posted else Role.VIEWER)
    is_owner = getattr(project, "role", None) == Role.OWNER
    form = RulesForm(request.POST if posted else None, rules=rules_of(project), fixed=not is_owner)
    if posted and form.is_valid():
        try:
            user, reactions = cast(User, request.user), form.reactions
            resumes = form.cleaned_data["resumes"]
            rules_change(project=project, user=user, thresholds=form.thresholds, reactions=reactions, resumes=resumes)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            messages.success(request, _("Saved. The doctor uses these rules from the next step of each run on."))
            return redirect("doctor-rules", slug=slug)
    changed = DoctorRules.objects.filter(project=project).select_related("changed_by").first()
    context = {"project": project, "form": form, "is_owner": is_owner, "changed": changed}
    return render(request, "doctor/rules.html", context, status=422 if posted else 200)
