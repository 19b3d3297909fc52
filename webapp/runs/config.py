"""A run's config, read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from django.db.models import Q
from pydantic import ValidationError

from training.config import JobConfig, RewardComponent
from training.rewards.scoring import COMPONENTS, form_components
from webapp.common.text import translated
from webapp.common.ui import NOTHING, weight
from webapp.runs.models import Run

CURVES = 8  # colours of curves; further components begin again


def config_of(run: Run) -> JobConfig | None:
    """The config that the run has or had; ``None`` when it was written by a version that no longer fits."""
    try:
        return JobConfig.model_validate(run.resolved or run.config)
    except ValidationError:
        return None


def stage_at(run: Run, step: int) -> int:
    """The number of the stage that trained a step, or whose weights were evaluated after it; 0 without stages."""
    stages = run.health.get("stages") or []
    return max((each["stage"] for each in stages if each["began"] < step), default=min(len(stages), 1))


def config_at(run: Run, step: int, part: str = "") -> JobConfig | None:
    """The config of a step: that of its stage, where the run has stages, or of a part of its mix."""
    config = config_of(run)
    return of_step(run, config, step, part) if config is not None else None


def of_step(run: Run, config: JobConfig, step: int, part: str = "") -> JobConfig:
    """The run's config for a step: its stage's options, where the run has stages, or those of a
    ``part`` of its mix."""
    if config.mix.parts:
        return config.named_courses.get(part, config)
    number = stage_at(run, step)
    return config.stage(number) if 0 < number <= len(config.stages) else config


def all_components(config: JobConfig | None) -> list[RewardComponent]:
    """The reward components of a job and of its stages, each name once."""
    courses = config.courses if config is not None else []
    return list({part.name: part for course in courses for part in course.rewards.components}.values())


def scored_components(run: Run) -> list[RewardComponent]:
    """The reward components of a run and of its stages, each name once, the default components included."""
    return list({part.name: part for course in _scored_by(config_of(run)) for part in course}.values())


def _scored_by(config: JobConfig | None) -> list[list[RewardComponent]]:
    """The components of each stage of a job, or of the job itself, with the default ones."""
    return [course.rewards.components or form_components() for course in (config.courses if config else [])]


def stack_weights(config: JobConfig | None) -> dict[str, float] | None:
    """The factor of each component's mean, so that they add up to the reward; ``None`` where no one number says
    it: a schedule, a scale, stages that weigh it differently, or parts of a mix that do not all have it."""
    scored = _scored_by(config)
    if config is not None and config.mix.parts and any(other != scored[0] for other in scored):
        return None  # each mean is of the rollouts of its own parts
    weights: dict[str, float] = {}
    for part in (part for course in scored for part in course):
        if part.schedule or part.scale or weights.setdefault(part.name, part.weight) != part.weight:
            return None
    return weights or None


def component_curves(run: Run) -> dict[str, int]:
    """The number of each component's colour, the same on every page of a run: its place among all that it has."""
    return {part.name: place % CURVES for place, part in enumerate(scored_components(run))}


def common_components(config: JobConfig | None) -> list[RewardComponent]:
    """The components of every rollout of a job: those that are the same in all of its stages."""
    courses = _scored_by(config)
    return [part for part in courses[0] if all(part in course for course in courses)] if courses else []


def having(group: str, option: str, value: str, *, config: str = "config") -> Q:
    """Runs whose config, or one of its stages or parts, has this value; ``config`` is the column that is read."""
    of_a_stage = {f"{config}__curriculum__stages__contains": [{group: {option: value}}]}
    of_a_part = {f"{config}__mix__parts__contains": [{group: {option: value}}]}
    return Q(**{f"{config}__{group}__{option}": value}) | Q(**of_a_stage) | Q(**of_a_part)


def title_of(part: RewardComponent) -> str:
    """A component as a page names it: its function's title, and its own name where that is another one."""
    known = COMPONENTS.get(part.registered)
    title = translated(known.title) if known else part.registered
    return title if part.registered == part.name else f"{title} ({part.name})"


def component_titles(components: Iterable[RewardComponent]) -> dict[str, str]:
    """The title of each component of the spec, in the spec's order, which gives the colours: as in the lab."""
    return {part.name: title_of(part) for part in components}


# --- Differences ----------------------------------------------------------------------------------------------------
# Two configs side by side: which options of one differ from the other's.


class Changed(NamedTuple):
    """One option in which a run differs from the run that it comes from."""

    path: str
    before: str
    after: str


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[Changed]:
    """The options that differ, as the two were written: references, not their targets. One that is empty, and that a
    version before did not have, differs in nothing."""
    old, new = flat(before), flat(after)
    shown = [Changed(path, plain(old.get(path)), plain(new[path])) for path in new if old.get(path) != new[path]]
    return [each for each in shown if (each.before, each.after) != (NOTHING, NOTHING)]


def flat(config: dict[str, Any]) -> dict[str, Any]:
    """``group.option`` to value."""
    flat: dict[str, Any] = {}
    for group, values in config.items():
        items = values.items() if isinstance(values, dict) else []
        flat |= {f"{group}.{name}": value for name, value in items} or {group: values}
    return flat


def plain(value: Any) -> str:
    """An option's value as a page shows it."""
    if value in (None, "", []):
        return NOTHING
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else []
    of_a_mix = any(isinstance(part, dict) and "environment" in part for part in parts)  # which have more to say
    if parts and not of_a_mix and all(isinstance(part, dict) and {"name", "weight"} <= part.keys() for part in parts):
        return ", ".join(f"{part['name']} × {weight(part['weight'])}" for part in parts)  # of a reward
    return json.dumps(value, ensure_ascii=False)
