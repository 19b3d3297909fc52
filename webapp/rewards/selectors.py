"""Reading reward specs: their components, the shaping of values as form fields and in words, and what changed between
versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from pydantic import ValidationError as ShapeError
from pydantic.fields import FieldInfo

from training.config import RewardComponent, RewardSchedule
from training.rewards.custom import CUSTOM, code_hash
from training.rewards.scoring import COMPONENTS
from training.words import option_of
from webapp.common.fields import LinesField, error_sentence
from webapp.common.ids import latest_versions
from webapp.people.teams.models import Project
from webapp.rewards.models import RewardSpec
from webapp.runs.config import having, title_of
from webapp.runs.models import Run
from webapp.runs.states import TERMINAL

# --- Shaping --------------------------------------------------------------------------------------------------------
# The shaping of a component's raw value before its weight: as fields of a form, and in words.

SHAPE = ("clip", "scale", "gate", "schedule", "categories")
"""The options of a component that shape its value."""


class ShapeLine(NamedTuple):
    """One of them in words."""

    what: str
    words: str


def shape_lines(part: RewardComponent, titles: Mapping[str, str]) -> list[ShapeLine]:
    """The shaping of a component, in the order of its steps; ``titles`` are those of the components by name."""
    lines = []
    if part.clip:
        words = _("values below %(low)g or above %(high)g are moved to the nearer end")
        lines.append(ShapeLine(_("Clip"), words % {"low": part.clip[0], "high": part.clip[1]}))
    if part.scale:
        words = _("%(low)g becomes 0, %(high)g becomes 1")
        lines.append(ShapeLine(_("Scale"), words % {"low": part.scale[0], "high": part.scale[1]}))
    if part.gate:
        title = titles.get(part.gate.component, part.gate.component)
        words = _("counts only where %(title)s is above %(above)g, else 0")
        lines.append(ShapeLine(_("Gate"), words % {"title": title, "above": part.gate.above}))
    if part.schedule:
        lines.append(ShapeLine(_("Weight schedule"), _schedule_words(part.schedule)))
    if part.categories:
        lines.append(ShapeLine(_("Only rows of"), ", ".join(part.categories)))
    return lines


def _schedule_words(schedule: RewardSchedule) -> str:
    if schedule.kind == "step":
        words = _("weight × %(first)g before step %(end)d, × %(last)g from it on")
    else:
        words = _("weight × %(first)g until step %(begin)d, then in a straight line to × %(last)g at step %(end)d")
    return words % schedule.model_dump()


class ShapeForm(forms.Form):
    """The shaping of a component's raw value before its weight, and the rows for which it is computed."""

    clip_low = forms.FloatField(label=gettext_lazy("Clip from"), required=False)
    clip_high = forms.FloatField(
        label=gettext_lazy("to"), required=False, help_text=gettext_lazy("Values outside are moved to the nearer end.")
    )
    scale_low = forms.FloatField(label=gettext_lazy("Scale from"), required=False)
    scale_high = forms.FloatField(
        label=gettext_lazy("to"), required=False, help_text=gettext_lazy("These two values become 0 and 1.")
    )
    gate_component = forms.ChoiceField(label=gettext_lazy("Only counts where"), required=False)
    gate_above = forms.FloatField(
        label=gettext_lazy("is above"),
        required=False,
        initial=0,
        help_text=gettext_lazy("Elsewhere its term is 0, for example shaping without success."),
    )
    schedule_kind = forms.ChoiceField(
        label=gettext_lazy("Weight schedule"),
        required=False,
        choices=[
            ("", gettext_lazy("none: the same at every step")),
            ("linear", gettext_lazy("a straight line")),
            ("step", gettext_lazy("a jump at its last step")),
        ],
    )
    schedule_begin = forms.IntegerField(label=gettext_lazy("from step"), required=False, min_value=0, initial=0)
    schedule_end = forms.IntegerField(label=gettext_lazy("to step"), required=False, min_value=0, initial=100)
    schedule_first = forms.FloatField(label=gettext_lazy("factor before"), required=False, initial=1)
    schedule_last = forms.FloatField(label=gettext_lazy("factor after"), required=False, initial=0)
    categories = LinesField(
        label=gettext_lazy("Only rows of"),
        required=False,
        max_items=100,
        help_text=gettext_lazy("Categories of the dataset, one a line; none means all rows."),
    )

    def __init__(self, *args: Any, others: Sequence[tuple[str, str]] = (), **kwargs: Any) -> None:
        """``others`` are the names and titles of the components that a gate may depend on."""
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
                self._place_error(error)
        return cleaned | {"shape": shape}

    def part_fields(self) -> dict[str, Any]:
        """The five options of a checked form, as a component holds them."""
        part = RewardComponent.model_validate({"name": "any", "weight": 1, **self.cleaned_data["shape"]})
        return {name: getattr(part, name) for name in SHAPE}

    def _place_error(self, error: Any) -> None:
        """Show a model's error next to the first field of its option."""
        option = option_of(error).split(".")[0]
        field = next((name for name in self.fields if option and name.startswith(option)), None)
        self.add_error(field, error_sentence(error))


# --- Specs ----------------------------------------------------------------------------------------------------------


def specs_of(project: Project) -> QuerySet[RewardSpec]:
    """All versions of all reward specs of a project, newest first."""
    return RewardSpec.objects.filter(project=project).select_related("project", "created_by")


def latest_specs(project: Project) -> QuerySet[RewardSpec]:
    """The newest version of each spec with how many versions there are."""
    return latest_versions(specs_of(project), project)


def versions_of(spec: RewardSpec) -> QuerySet[RewardSpec]:
    """All versions under the same name, newest first."""
    return specs_of(spec.project).filter(name=spec.name).order_by("-version")


def newest_named(project: Project, name: str) -> RewardSpec | None:
    """The newest version under a name."""
    return specs_of(project).filter(name=name).order_by("-version").first()


def runs_using(spec: RewardSpec, *, active: bool = False) -> QuerySet[Run]:
    """Runs whose config names this version."""
    runs = Run.objects.filter(having("rewards", "spec", spec.reference), project=spec.project)
    return runs.exclude(state__in=TERMINAL) if active else runs


def component_titles(project: Project) -> dict[str, str]:
    """Titles by name of every component that a case of the project may speak of: the registered ones, and those that
    the newest version of a spec has under a name of its own."""
    titles = {name: _(item.title) for name, item in COMPONENTS.items() if name != CUSTOM}
    for spec in latest_specs(project):
        parts = [RewardComponent.model_validate(item) for item in spec.components]
        titles |= {part.name: title_of(part) for part in parts if part.name not in titles}
    return titles


class PartView(NamedTuple):
    """One component of a spec as the page shows it; ``share`` is its part of the weights, in per cent."""

    name: str
    title: str
    help: str
    weight: float
    share: int
    params: list[tuple[str, Any, bool]]
    code: str = ""
    sha256: str = ""
    shape: Sequence[ShapeLine] = ()


def parts_of(spec: RewardSpec) -> list[PartView]:
    """The components of a spec with titles, shares, parameters (title, value, differs from the default) and shapes."""
    total = sum(abs(float(part["weight"])) for part in spec.components) or 1.0
    chosen = [RewardComponent.model_validate(part) for part in spec.components]
    titles = {part.name: title_of(part) for part in chosen}
    return [_part_view(part, total)._replace(shape=shape_lines(part, titles)) for part in chosen]


def _part_view(chosen: RewardComponent, total: float) -> PartView:
    known, given, weight = COMPONENTS.get(chosen.registered), chosen.params, chosen.weight
    share = round(100 * abs(weight) / total)
    if known is None:
        return PartView(chosen.name, chosen.name, _("This component is no longer known."), weight, share, [])
    params = []
    for name, info in known.params.model_fields.items():
        if is_code(info):
            continue
        default = info.get_default(call_default_factory=True)  # type: ignore[call-arg]
        value = given.get(name, default)
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        params.append((_(info.title or name), shown, value != default))
    code = str(given.get("code", "")) if chosen.registered == CUSTOM else ""
    return PartView(
        chosen.name, title_of(chosen), _(known.help), weight, share, params, code, code_hash(code) if code else ""
    )


def is_code(info: FieldInfo | None) -> bool:
    """Whether a parameter is code or its hash, which pages show in a way of their own."""
    extra = info.json_schema_extra if info is not None and isinstance(info.json_schema_extra, dict) else {}
    return extra.get("widget") == "code"


class Change(NamedTuple):
    """One difference between two versions."""

    what: str
    before: str
    after: str


def changes_between(older: RewardSpec, newer: RewardSpec) -> list[Change]:
    """The changes in the newer version, one line a weight, parameter or shape; empty text means "not there"."""
    before, after = _flat_spec(older), _flat_spec(newer)
    keys = list(dict.fromkeys([*before, *after]))
    return [Change(key, before.get(key, ""), after.get(key, "")) for key in keys if before.get(key) != after.get(key)]


def _flat_spec(spec: RewardSpec) -> dict[str, str]:
    flat = {}
    components = [RewardComponent.model_validate(part) for part in spec.components]
    titles = {part.name: title_of(part) for part in components}
    for chosen in components:
        known, title = COMPONENTS.get(chosen.registered), title_of(chosen)
        flat[f"{title} · {_('weight')}"] = f"{chosen.weight:g}"
        for key, value in chosen.params.items():
            info = known.params.model_fields.get(key) if known else None
            if key == "code" and is_code(info):
                continue  # its hash is shown instead
            label = _(info.title) if info and info.title else key
            flat[f"{title} · {label}"] = ", ".join(map(str, value)) if isinstance(value, list) else f"{value}"
        flat |= {f"{title} · {line.what}": line.words for line in shape_lines(chosen, titles)}
    return flat
