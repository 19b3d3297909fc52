"""The parts of a rollout's reward under the spec of its step: value, weight, contribution, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.utils.translation import gettext as _

from training.config import JobConfig, RewardComponent
from training.rewards.combining import SCHEDULES_ENDED, factor, term_of
from training.rewards.scoring import form_components
from webapp.common.text import figure
from webapp.runs.config import component_curves, component_titles, config_at
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout


class Part(NamedTuple):
    """One component of a rollout's reward. ``curve`` is the number of its colour, ``None`` where the spec lacks it.

    ``term`` is what the value becomes before its weight (clipped, scaled, gated, scheduled), ``counted`` is weight ×
    term; ``why`` says how the value was changed where the term is another number.
    """

    name: str
    title: str
    curve: int | None
    value: float | None
    weight: float | None
    term: float | None
    counted: float | None
    why: str = ""


def spec_of(run: Run, config: JobConfig | None) -> list[RewardComponent]:
    """The components that scored a run's rollouts; none where its config cannot be read, or is another trainer's."""
    if config is None:
        return []
    chosen = config.rewards.components
    return chosen or ([] if run.imported_from else form_components())


def config_for(rollout: Rollout) -> JobConfig | None:
    """The run's config at the rollout's step."""
    return config_at(rollout.run, rollout.step, rollout.part)


def weighed_at(rollout: Rollout) -> int:
    """The step whose schedules weighed it: evaluations weigh as schedules end."""
    return SCHEDULES_ENDED if rollout.held_out or rollout.run.method.evaluates else rollout.step


def parts_of(rollout: Rollout, components: Sequence[RewardComponent]) -> list[Part]:
    """The recorded parts in the spec's order, as the run page and the lab have them; those it lacks come last."""
    titles = component_titles(components)
    order = {name: number for number, name in enumerate(titles)}
    curves = component_curves(rollout.run)
    chosen = {item.name: item for item in components}
    step = weighed_at(rollout)
    return [
        _part_of(name, rollout.parts, chosen.get(name), titles.get(name, name), curves.get(name), step)
        for name in sorted(rollout.parts, key=lambda name: order.get(name, len(order)))
    ]


def _part_of(
    name: str, parts: dict[str, float], item: RewardComponent | None, title: str, curve: int | None, step: int
) -> Part:
    value = parts[name]
    if item is None or value is None:
        return Part(name, title, curve, value, None, None, None)
    known = {key: number for key, number in parts.items() if number is not None}
    term = term_of(item, known, step)
    counted = None if term is None else item.weight * term
    return Part(name, title, curve, value, item.weight, term, counted, _term_note(item, known, term, step))


def _term_note(item: RewardComponent, parts: dict[str, float], term: float | None, step: int) -> str:
    """How a value was changed before its weight (gate, clip, scale); empty where it was not."""
    if term is None or term == parts[item.name]:
        return ""
    if item.gate is not None and not parts.get(item.gate.component, float("-inf")) > item.gate.above:
        values = {"gate": item.gate.component, "above": figure(item.gate.above)}
        return _("Its gate is closed: %(gate)s is not above %(above)s.") % values
    done = []
    if item.clip is not None and not item.clip[0] <= parts[item.name] <= item.clip[1]:
        done.append(_("clipped to %(low)s to %(high)s") % {"low": figure(item.clip[0]), "high": figure(item.clip[1])})
    if item.scale is not None:
        values = {"low": figure(item.scale[0]), "high": figure(item.scale[1])}
        done.append(_("scaled so that %(low)s to %(high)s become 0 to 1") % values)
    if item.schedule is not None:
        done.append(_("× %(factor)s by its schedule") % {"factor": figure(factor(item.schedule, step))})
    return _("counts as %(term)s: %(done)s") % {"term": figure(term), "done": _(", ").join(done)}
