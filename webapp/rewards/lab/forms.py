"""Forms of the lab: a new rollout set, and the fields with which a script edits the components of a spec."""

from __future__ import annotations

from typing import Any, NamedTuple

from django import forms
from django.forms.boundfield import BoundField
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from training.rewards.base import Component
from training.rewards.custom import CUSTOM
from training.rewards.scoring import FAMILIES
from webapp.common.fields import LinesField, fields_of
from webapp.common.ids import name_validator
from webapp.common.pages import newest_only
from webapp.rewards.models import SetKind
from webapp.rewards.views import FAMILY_TITLES
from webapp.runs.models import Run

MAX_STEP = 1_000_000
EXAMPLE = '[{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5"}]'
PLACE = "__id__"
"""A placeholder in the names of template fields, which a script replaces with the number of the component."""

OFFERED = 200
"""Runs that the form lists, the newest; a run's own page has a button that opens it here."""


class SetForm(forms.Form):
    """What a rollout set is made of; the service judges whether it can be."""

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
    """What a script needs to edit components of one registered function."""

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
