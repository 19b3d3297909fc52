"""Options of built-in servers as fields of a form, named ``<group>-<option>``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from webapp.common.pages import add_errors
from webapp.common.storage import environment_data_root
from webapp.environments.options import PLACES, Option, arguments_clean, places_offered
from webapp.environments.strings import option_text


@dataclass(frozen=True)
class Group:
    """The options of one program or command; ``fields`` are as a template shows them."""

    name: str
    options: Sequence[Option]
    fields: list[forms.BoundField]
    needs_data: bool

    @property
    def data_root(self) -> str:
        """Where the operator puts data."""
        return str(environment_data_root())


class OptionsForm(forms.Form):
    """A form that options can be added to. Only those of the group that is read are judged."""

    def add_options(
        self, name: str, options: Sequence[Option], values: Mapping[str, Any] | None = None, *, program: str = ""
    ) -> Group:
        """Fields for all options of a group, with the values that they have now."""
        places = {kind: places_offered(kind) for kind in {option.kind for option in options} if kind in PLACES}
        for option in options:
            value = (values or {}).get(option.name, option.default)
            field = _form_field(option, value, places.get(option.kind, []))
            text = option_text(program or name, option.name)
            field.label, field.help_text, field.initial = str(text.label), str(text.help), value
            self.fields[f"{name}-{option.name}"] = field
        fields = [self[f"{name}-{option.name}"] for option in options]
        return Group(name, options, fields, needs_data=bool(places))

    def read_options(self, group: Group | None) -> dict[str, Any]:
        """What was chosen in a group, errors at its fields; faults in other groups are forgotten."""
        prefix = f"{group.name}-" if group else "-"
        for name in [name for name in self.errors if "-" in name and not name.startswith(prefix)]:
            del self.errors[name]
        if group is None:
            return {}
        given = {option.name: self.cleaned_data.get(prefix + option.name) for option in group.options}
        try:
            return arguments_clean(group.options, given, prefix=prefix)
        except ValidationError as exc:
            add_errors(self, exc)
            return {}


def _form_field(option: Option, value: Any, places: list[str]) -> forms.Field:
    if option.kind == "flag":
        return forms.BooleanField(required=False)
    if option.kind == "integer":
        return forms.IntegerField(min_value=option.minimum, max_value=option.maximum, required=False)
    if option.kind == "number":
        return forms.FloatField(
            min_value=option.minimum,
            max_value=option.maximum,
            required=False,
            widget=forms.NumberInput(attrs={"step": "any"}),
        )
    if option.kind == "choice":
        return forms.ChoiceField(choices=[(word, word) for word in option.choices], required=False)
    # The present value stays choosable although it is gone, so that its sentence is shown at the field.
    names = places if value in (None, *places) else [*places, str(value)]
    return forms.ChoiceField(choices=[("", _("none")), *((name, name) for name in names)], required=False)
