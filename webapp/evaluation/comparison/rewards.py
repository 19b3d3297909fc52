"""The reward spec of a comparison, and its evaluations weighed by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.utils.translation import gettext as _

from training.config import kind_in, name_in
from training.errors import ConfigError
from webapp.common.pages import newest_only
from webapp.engine.resolve import components_meant
from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.figures import Numbers, Spec, numbers_of, same_rewards
from webapp.evaluation.comparison.lacking import computed_sentences, missing_sentences
from webapp.people.teams.models import Project
from webapp.rewards.selectors import specs_of

SPECS_OFFERED = 50


class SpecChoice(NamedTuple):
    """A reward spec that all can be weighed by."""

    value: str
    label: str
    chosen: bool


class Rewards(NamedTuple):
    """How the rewards of the page were made. ``comparable``: one spec gave or re-weighed all of them.

    ``unknown`` are the components of the spec that lack a value in some counted rollout of a contestant; ``computed``
    and ``missing`` say in sentences what was computed from transcripts, and what is missing and why. ``asked`` is the
    spec's name in the address.
    """

    differ: bool
    asked: str
    chosen: Spec | None
    choices: list[SpecChoice]
    unknown: list[tuple[Contestant, list[str]]]
    computed: list[str]
    missing: list[str]

    @property
    def comparable(self) -> bool:
        """Whether rewards may be shown side by side."""
        return not self.differ or self.chosen is not None


class Evaluations(NamedTuple):
    """The contestants that are evaluations, their figures, and the spec of their rewards."""

    playing: list[Contestant]
    numbers: Numbers
    rewards: Rewards


def evaluations(project: Project, contestants: Sequence[Contestant], spec: str) -> Evaluations | None:
    """The evaluations among the contestants, with rewards weighed by ``spec`` if there is one; ``None`` where no
    contestant is an evaluation. Nothing is computed here: values that were neither recorded nor scored are missing."""
    playing = [item for item in contestants if item.evaluates]
    if not playing:
        return None
    chosen = spec_named(project, playing, spec[:200]) if spec else None
    numbers = numbers_of(playing, chosen)
    return Evaluations(playing, numbers, _rewards_of(project, playing, numbers, chosen, spec[:200]))


def _rewards_of(
    project: Project, playing: Sequence[Contestant], numbers: Numbers, chosen: Spec | None, asked: str
) -> Rewards:
    """Which spec the rewards follow: all the same one, or the one that was asked for."""
    differ = any(not same_rewards(item.components, playing[0].components) for item in playing)
    choices = [
        SpecChoice(str(item.run.pk), item.spec or _("the rewards of %(name)s") % {"name": item.run.name}, False)
        for item in playing
    ]
    saved = list(specs_of(project)[:SPECS_OFFERED])
    choices += [SpecChoice(item.reference, str(item), False) for item in saved]
    if more := newest_only(len(saved), SPECS_OFFERED):
        choices.append(SpecChoice("", more, False))
    marked = [choice._replace(chosen=bool(asked) and choice.value == asked) for choice in choices]
    unique = {choice.label: choice for choice in reversed(marked)}
    lacking = list(zip(playing, numbers.lacks, strict=True)) if chosen else []
    unknown = [
        (item, names)
        for item, lacks in lacking
        if (names := [name for name, lack in lacks.by_name.items() if lack.missing])
    ]
    told = [(item.run.name, lacks) for item, lacks in lacking]
    components = chosen.components if chosen else []
    return Rewards(
        differ,
        asked,
        chosen,
        list(reversed(unique.values())),
        unknown,
        computed_sentences(components, told),
        missing_sentences(components, told),
    )


def spec_named(project: Project, playing: Sequence[Contestant], asked: str) -> Spec | None:
    """The spec that an address names: a run's by its id, or one of the project by its reference."""
    for item in playing:
        if asked == str(item.run.pk):
            return Spec(item.spec or item.run.name, item.components)
    config = playing[0].config if playing else None
    if config is None or kind_in(asked) != "reward":
        return None
    wanted = config.model_copy(update={"rewards": config.rewards.model_copy(update={"spec": asked[:200]})})
    try:
        return Spec(name_in("reward", asked), components_meant(project, wanted))
    except ConfigError:
        return None
