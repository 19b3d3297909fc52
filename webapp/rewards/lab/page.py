"""The contents of the lab's pages: runs that a set can be made of, specs to choose from, and the launch address."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from training.config import JobConfig, RewardComponent
from training.rewards.registry import COMPONENTS, form_components, starting_components
from webapp.common.fields import error_sentence
from webapp.common.text import translated
from webapp.people.teams.models import Project
from webapp.rewards.models import RewardSpec, RolloutSet, SetKind
from webapp.rewards.selectors import latest_specs, specs_of
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

MAX_SPECS = 60
MAX_NAME = 80
AS_LAUNCHED, STARTING = "run", "start"
"""Keys of the two choices that are no saved spec: the components of the set's run, and the usual start."""


class Choice(NamedTuple):
    """A spec that can be chosen in the lab; ``key`` is in the address."""

    key: str
    label: str
    name: str
    reference: str
    components: list[dict[str, Any]]


def runs_with_rollouts(project: Project) -> QuerySet[Run]:
    """Runs that a set can be made from, newest first."""
    recorded = Rollout.objects.filter(run=OuterRef("pk"))
    return Run.objects.filter(Exists(recorded), project=project).order_by("-created_at")


def choices_for(project: Project, rollout_set: RolloutSet, asked: list[str]) -> list[Choice]:
    """First the components of the set's run, then the newest version of each spec and those that the address names."""
    config = _config_of(rollout_set)
    own = _spec_named(project, config.rewards.spec) if config else None
    launched = _launched_components(rollout_set, config) if config and own is None else []
    found = {spec.pk: spec for spec in [*([own] if own else []), *latest_specs(project)[:MAX_SPECS]]}
    wanted = [key for key in map(_parse_uuid, asked) if key is not None and key not in found]
    found |= {spec.pk: spec for spec in specs_of(project).filter(pk__in=wanted)}
    as_launched = _("as launched by %(run)s") % {"run": rollout_set.run_name}
    first = [Choice(AS_LAUNCHED, as_launched, "", "", _components_json(launched))] if launched else []
    saved = [_choice_of(spec) for spec in found.values()]
    form = Choice(STARTING, _("the five tool-calling components"), "", "", _components_json(form_components()))
    if config is not None and own is None and not launched:  # runs without a spec were scored so before 0.2
        return [form, *saved]
    start = Choice(STARTING, _("the components of a new spec"), "", "", _components_json(starting_components()))
    return [*first, *saved, start]


def _launched_components(rollout_set: RolloutSet, config: JobConfig) -> list[RewardComponent]:
    """The components that the set's run was launched with: its own, else those that were filled in."""
    filled = config_of(rollout_set.run) if rollout_set.run is not None else None
    return config.rewards.components or (filled.rewards.components if filled is not None else [])


def _spec_named(project: Project, reference: str) -> RewardSpec | None:
    """The version that a run's config names."""
    name, _at, version = reference.removeprefix("reward:").rpartition("@")
    if not version.isascii() or not version.isdigit() or len(version) > 9:
        return None
    return specs_of(project).filter(name=name, version=int(version)).first()


def _choice_of(spec: RewardSpec) -> Choice:
    return Choice(str(spec.pk), str(spec), spec.name, spec.reference, spec.components)


def spec_named(project: Project, key: str) -> RewardSpec | None:
    """The saved spec that an address names; ``None`` where it names none of this project."""
    found = _parse_uuid(key)
    return specs_of(project).filter(pk=found).first() if found else None


def _parse_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _config_of(rollout_set: RolloutSet) -> JobConfig | None:
    if rollout_set.run is None:
        return None
    try:
        return JobConfig.model_validate(rollout_set.run.config)
    except ShapeError:
        return None


def _components_json(components: list[RewardComponent]) -> list[dict[str, Any]]:
    return [part.model_dump(mode="json", exclude_defaults=True) | {"params": part.params} for part in components]


def chosen_of(choices: list[Choice], key: str) -> Choice:
    """The choice that the address names, else the first one."""
    return next((item for item in choices if item.key == key), choices[0])


def functions() -> dict[str, dict[str, Any]]:
    """The facts that a script needs of each registered component."""
    return {
        item.name: {
            "title": translated(item.title),
            "help": translated(item.help),
            "warning": translated(item.warning),
            "outside": item.outside,
            "weight": item.default_weight,
        }
        for item in COMPONENTS.values()
    }


def set_name(kind: str, run: Run | None, first: int | None, last: int | None) -> str:
    """A name for a set whose maker gave none: its source and steps."""
    if run is not None and kind == SetKind.RUN:
        steps = "" if first is None and last is None else f" {first or 0}-{'' if last is None else last}"
        return run.name[: MAX_NAME - len(steps)] + steps
    label = _("Test cases") if kind == SetKind.CASES else _("Pasted")
    return f"{label} {timezone.localtime():%Y-%m-%d %H-%M}"


def launch_address(project: Project, rollout_set: RolloutSet) -> str:
    """The form of a new run; of a set made from a run with all of that run's config, whose spec the page replaces."""
    config, run = _config_of(rollout_set), rollout_set.run
    known: dict[str, str] = {}
    if run is not None and config is not None and run.imported_from:  # its trainer's options are not ours
        known = {"dataset": config.data.train, "environment": config.environment.name, "model": config.model.source}
    elif run is not None and config is not None:
        known = {"from": str(run.pk)}
    given = urlencode({key: value for key, value in known.items() if value})
    return reverse("run-new", args=[project.slug]) + (f"?{given}" if given else "")


def problems_of(exc: ShapeError) -> dict[str, list[str]]:
    """The model's errors for posted components, by the place of the component; "" where it is about none."""
    found: dict[str, list[str]] = {}
    for error in exc.errors(include_url=False, include_input=False):
        place = error["loc"][1] if len(error["loc"]) > 1 and error["loc"][0] == "components" else ""
        found.setdefault(str(place), []).append(error_sentence(error))
    return found
