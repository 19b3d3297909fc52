"""Forms of the lab: a new rollout set, and the fields with which a script edits the components of a spec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django import forms
from django.forms.boundfield import BoundField
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from pydantic import ValidationError as ShapeError

from training.config import RewardComponent
from training.rewards.base import Component
from training.rewards.custom import CUSTOM
from training.rewards.registry import FAMILIES
from webapp.fields import LinesField, error_sentence, fields_of
from webapp.ids import name_validator
from webapp.rewards.forms import FAMILY_TITLES
from webapp.rewards.models import SetKind
from webapp.runs.models import Run

MAX_STEP = 1_000_000
EXAMPLE = '[{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5"}]'
PLACE = "__id__"
"""Stands in the names of template fields where a script puts the number of the component."""


class SetForm(forms.Form):
    """What a rollout set is made of; the service judges whether it can be."""

    kind = forms.ChoiceField(
        label=gettext_lazy("Rollouts from"), choices=SetKind.choices, initial=SetKind.RUN, widget=forms.RadioSelect
    )
    run = forms.ModelChoiceField(
        label=gettext_lazy("Run"), queryset=Run.objects.none(), required=False, empty_label=gettext_lazy("Choose a run")
    )
    first_step = forms.IntegerField(
        label=gettext_lazy("First step"), required=False, min_value=0, max_value=MAX_STEP,
        help_text=gettext_lazy("Empty: from the beginning."),
    )  # fmt: skip
    last_step = forms.IntegerField(
        label=gettext_lazy("Last step"), required=False, min_value=0, max_value=MAX_STEP,
        help_text=gettext_lazy("Empty: to the newest."),
    )  # fmt: skip
    text = forms.CharField(
        label=gettext_lazy("Conversations"), required=False, strip=False,
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false", "class": "mono", "placeholder": EXAMPLE}),
        help_text=gettext_lazy("JSON: a list of messages or of conversations, or one conversation a line, up to 1 MB."),
    )  # fmt: skip
    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=80, required=False, validators=[name_validator],
        help_text=gettext_lazy("Empty: named after where it comes from."),
    )  # fmt: skip

    def __init__(self, *args: Any, runs: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["run"].queryset = runs  # type: ignore[attr-defined]
        self.has_runs = runs.exists()
        if not self.has_runs:
            self.initial.setdefault("kind", SetKind.PASTED)


class ShapeForm(forms.Form):
    """What happens to a component's raw value before its weight, and for which rows it is computed at all."""

    clip_low = forms.FloatField(label=gettext_lazy("Clip from"), required=False)
    clip_high = forms.FloatField(
        label=gettext_lazy("to"), required=False, help_text=gettext_lazy("Values outside are moved to the nearer end.")
    )
    scale_low = forms.FloatField(label=gettext_lazy("Scale from"), required=False)
    scale_high = forms.FloatField(
        label=gettext_lazy("to"), required=False, help_text=gettext_lazy("These two values become 0 and 1.")
    )
    gate_component = forms.ChoiceField(label=gettext_lazy("Counts only where"), required=False)
    gate_above = forms.FloatField(
        label=gettext_lazy("is above"), required=False, initial=0,
        help_text=gettext_lazy("Elsewhere its term is 0, such as shaping without success."),
    )  # fmt: skip
    schedule_kind = forms.ChoiceField(
        label=gettext_lazy("Schedule"), required=False,
        choices=[
            ("", gettext_lazy("none: the same at every step")),
            ("linear", gettext_lazy("a straight line")),
            ("step", gettext_lazy("a jump at its last step")),
        ],
    )  # fmt: skip
    schedule_begin = forms.IntegerField(label=gettext_lazy("from step"), required=False, min_value=0, initial=0)
    schedule_end = forms.IntegerField(label=gettext_lazy("to step"), required=False, min_value=0, initial=100)
    schedule_first = forms.FloatField(label=gettext_lazy("factor before"), required=False, initial=1)
    schedule_last = forms.FloatField(label=gettext_lazy("factor after"), required=False, initial=0)
    categories = LinesField(
        label=gettext_lazy("Only rows of"), required=False, max_items=100,
        help_text=gettext_lazy("Categories of the dataset, one a line; none means all rows."),
    )  # fmt: skip

    def __init__(self, *args: Any, others: Sequence[tuple[str, str]] = (), **kwargs: Any) -> None:
        """``others`` are the names and titles of the components that a gate may look at."""
        super().__init__(*args, **kwargs)
        self.fields["gate_component"].choices = [("", _("always")), *others]  # type: ignore[attr-defined]
        for field in self.fields.values():
            if isinstance(field, forms.FloatField):
                field.widget.attrs["step"] = "any"

    @staticmethod
    def initial_of(part: RewardComponent) -> dict[str, Any]:
        """The values of a component as these fields show them."""
        given: dict[str, Any] = {"categories": part.categories}
        for name, bounds in (("clip", part.clip), ("scale", part.scale)):
            if bounds:
                given |= {f"{name}_low": bounds[0], f"{name}_high": bounds[1]}
        if part.gate:
            given |= {"gate_component": part.gate.component, "gate_above": part.gate.above}
        if part.schedule:
            given |= {f"schedule_{key}": value for key, value in part.schedule.model_dump().items()}
        return given

    def clean(self) -> dict[str, Any]:
        """Add ``shape``: the five options as a component takes them."""
        cleaned = super().clean() or {}
        if self.errors:
            return cleaned
        shape: dict[str, Any] = {"categories": cleaned["categories"]}
        for name in ("clip", "scale"):
            bounds = [cleaned[f"{name}_low"], cleaned[f"{name}_high"]]
            shape[name] = None if bounds == [None, None] else bounds
        gate, kind = cleaned["gate_component"], cleaned["schedule_kind"]
        shape["gate"] = {"component": gate, "above": cleaned["gate_above"] or 0.0} if gate else None
        keys = ("kind", "begin", "end", "first", "last")
        shape["schedule"] = {key: cleaned[f"schedule_{key}"] for key in keys} if kind else None
        try:
            RewardComponent.model_validate({"name": "any", "weight": 1, **shape})
        except ShapeError as exc:
            for error in exc.errors(include_url=False, include_input=False):
                self._place(error)
        return cleaned | {"shape": shape}

    def _place(self, error: Any) -> None:
        """Put a model's error beside the first field of its option."""
        message = error_sentence(error)
        head, colon, rest = message.partition(": ")
        option = str(error["loc"][0]) if error["loc"] else head if colon else ""
        field = next((name for name in self.fields if option and name.startswith(option)), None)
        self.add_error(field, _(rest) if colon else message)


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


# A FloatField is an IntegerField to Python, so it stands first.
KINDS: tuple[tuple[type[forms.Field], str], ...] = (
    (LinesField, "lines"), (forms.FloatField, "number"), (forms.IntegerField, "integer"),
    (forms.BooleanField, "boolean"),
)  # fmt: skip


def _kind(field: forms.Field) -> str:
    return next((kind for known, kind in KINDS if isinstance(field, known)), "text")


def editor_of(component: Component) -> Editor:
    """The parameter fields of one registered component, as a template of which a script makes copies."""
    form = forms.Form(prefix=PLACE)
    form.fields.update(fields_of(component.params))
    params = [ParamField(key, _kind(field), form[key]) for key, field in form.fields.items()]
    return Editor(component.name, _(component.title), params, component.name == CUSTOM)


def editors() -> list[tuple[str, list[Editor]]]:
    """The editors of all registered components by family."""
    return [(str(FAMILY_TITLES.get(key, key)), [editor_of(item) for item in items]) for key, items in FAMILIES.items()]
