"""Reading reward specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from pydantic.fields import FieldInfo

from training.config import RewardComponent
from training.rewards.custom import CUSTOM, code_hash
from training.rewards.scoring import COMPONENTS
from webapp.common.ids import latest_versions
from webapp.people.teams.models import Project
from webapp.rewards.models import RewardSpec
from webapp.rewards.shape import ShapeLine, shape_lines
from webapp.runs.config import having, title_of
from webapp.runs.models import Run
from webapp.runs.states import TERMINAL


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
    """What the newer version changed, one line a weight, parameter or shape; empty text means "not there"."""
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
                continue  # its hash stands for it
            label = _(info.title) if info and info.title else key
            flat[f"{title} · {label}"] = ", ".join(map(str, value)) if isinstance(value, list) else f"{value}"
        flat |= {f"{title} · {line.what}": line.words for line in shape_lines(chosen, titles)}
    return flat
