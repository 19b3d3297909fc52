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
from training.rewards.base import Component
from training.rewards.registry import COMPONENTS, FAMILIES, default_components
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


class Family(NamedTuple):
    """Components that belong together; those of which none is chosen are folded."""

    title: str
    parts: list[ComponentFields]
    chosen: int
    open: bool


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
}
ALWAYS_OPEN = "outcome"


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

    def families(self) -> Iterator[Family]:
        """What the template shows, in the registry's order."""
        for family, components in FAMILIES.items():
            parts = [self._fields_of(component) for component in components]
            chosen = sum(bool(part.on.value()) for part in parts)
            wrong = any(part.changed or part.weight.errors or part.on.errors for part in parts)
            title = str(FAMILY_TITLES.get(family, family))
            yield Family(title, parts, chosen, bool(chosen) or wrong or family == ALWAYS_OPEN)

    def _fields_of(self, component: Component) -> ComponentFields:
        prefix = f"{component.name}.params."
        params = [self[key] for key in self.fields if key.startswith(prefix)]
        changed = any(self.errors.get(field.name) for field in params) if self.is_bound else False
        explained = " ".join(_(text) for text in (component.help, component.warning) if text)
        return ComponentFields(
            component.name, _(component.title), explained, self[f"{component.name}.on"],
            self[f"{component.name}.weight"], params, changed,
        )  # fmt: skip

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
