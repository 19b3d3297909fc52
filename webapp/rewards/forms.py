"""The form of a reward spec: every known component with a switch, a weight and its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS
from django.forms.boundfield import BoundField
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from pydantic import ValidationError as ShapeError

from training.config import RewardComponent
from training.rewards.registry import COMPONENTS, default_components
from webapp.fields import error_sentence, fields_of
from webapp.ids import name_validator


class ComponentFields(NamedTuple):
    """The fields of one component, as the template lays them out."""

    name: str
    title: str
    help: str
    on: BoundField
    weight: BoundField
    params: list[BoundField]
    changed: bool


class RewardSpecForm(forms.Form):
    """Fields are named ``<component>.on``, ``<component>.weight`` and ``<component>.params.<name>``."""

    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=80, validators=[name_validator],
        help_text=gettext_lazy("How runs of this project name it. A name that exists gets its next version."),
    )  # fmt: skip

    def __init__(self, *args: Any, components: list[RewardComponent] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        chosen = {part.name: part for part in (default_components() if components is None else components)}
        self._start = chosen
        for name, component in COMPONENTS.items():
            part = chosen.get(name)
            self.fields[f"{name}.on"] = forms.BooleanField(
                required=False, initial=part is not None, label=_(component.title)
            )
            self.fields[f"{name}.weight"] = forms.FloatField(
                label=_("Weight"), required=False, min_value=-100, max_value=100,
                initial=part.weight if part else component.default_weight,
                widget=forms.NumberInput(attrs={"step": "any"}),
            )  # fmt: skip
            for key, field in fields_of(component.params).items():
                if part and key in part.params:
                    field.initial = part.params[key]
                self.fields[f"{name}.params.{key}"] = field

    def components_fields(self) -> Iterator[ComponentFields]:
        """What the template shows, in the registry's order."""
        for name, component in COMPONENTS.items():
            prefix = f"{name}.params."
            params = [self[key] for key in self.fields if key.startswith(prefix)]
            changed = any(self.errors.get(field.name) for field in params) if self.is_bound else False
            explained = " ".join(_(text) for text in (component.help, component.warning) if text)
            yield ComponentFields(
                name, _(component.title), explained, self[f"{name}.on"], self[f"{name}.weight"], params, changed
            )

    def clean(self) -> dict[str, Any]:
        """Make the components; what the models find stands beside the field it belongs to."""
        cleaned = super().clean() or {}
        if not self.errors:
            cleaned["components"] = [part for name in COMPONENTS if (part := self._component(name, cleaned))]
        return cleaned

    def _component(self, name: str, cleaned: dict[str, Any]) -> RewardComponent | None:
        if not cleaned.get(f"{name}.on"):
            return None
        if cleaned.get(f"{name}.weight") is None:
            self.add_error(f"{name}.weight", _("A component that is switched on needs a weight."))
            return None
        prefix = f"{name}.params."
        params = {key.removeprefix(prefix): cleaned[key] for key in self.fields if key.startswith(prefix)}
        try:
            COMPONENTS[name].params.model_validate(params)
            # What the form does not show (clip, gate, …) stays as it was.
            start = self._start.get(name) or RewardComponent(name=name, weight=1)
            return start.model_copy(update={"weight": cleaned[f"{name}.weight"], "params": params})
        except ShapeError as exc:
            for error in exc.errors(include_url=False, include_input=False):
                self._place(prefix, error)
            return None

    def _place(self, prefix: str, error: Any) -> None:
        """Put a model's error beside its parameter; a message about several starts with the one it belongs to."""
        message = error_sentence(error)
        key = str(error["loc"][0]) if error["loc"] else ""
        head, colon, rest = message.partition(": ")
        if not key and colon and prefix + head in self.fields:
            key, message = head, rest
        self.add_error(prefix + key if prefix + key in self.fields else None, _(message) or NON_FIELD_ERRORS)


class TryForm(forms.Form):
    """A conversation to score."""

    conversation = forms.CharField(
        label=gettext_lazy("Conversation"), max_length=70_000, strip=False,
        widget=forms.Textarea(attrs={"rows": 10, "spellcheck": "false"}),
        help_text=gettext_lazy("JSON: a list of messages with role and content, up to 64 KB."),
    )  # fmt: skip
