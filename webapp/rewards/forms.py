"""The form of a reward spec: every known component with a switch, a weight and its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS
from django.forms.boundfield import BoundField
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from pydantic import ValidationError as ShapeError

from training.config import RewardComponent
from training.rewards.base import Component
from training.rewards.custom import CUSTOM
from training.rewards.custom.params import code_hash
from training.rewards.registry import COMPONENTS, FAMILIES, starting_components
from training.words import option_of
from webapp.common.fields import error_sentence, fields_of
from webapp.common.ids import name_validator
from webapp.rewards.shape import ShapeForm, shape_lines


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
