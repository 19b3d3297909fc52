"""All families of reward components. A new one is a module next to these and one line here."""

from __future__ import annotations

from collections.abc import Sequence

from training.config import JobConfig, RewardComponent
from training.errors import ConfigError
from training.rewards.base import Component
from training.rewards.bfcl import BFCL
from training.rewards.custom import CUSTOM_FAMILY
from training.rewards.general import GENERAL
from training.rewards.helloagents import HELLOAGENTS
from training.rewards.judge import JUDGE
from training.rewards.model_based import MODEL_BASED
from training.rewards.outcome import OUTCOME
from training.rewards.tool_calling import TOOL_CALLING
from training.rewards.toolbench import TOOLBENCH
from training.rewards.webshop import WEBSHOP
from training.words import _, sentence

FAMILIES: dict[str, tuple[Component, ...]] = {
    "tool_calling": TOOL_CALLING,
    "outcome": OUTCOME,
    "toolbench": TOOLBENCH,
    "bfcl": BFCL,
    "webshop": WEBSHOP,
    "helloagents": HELLOAGENTS,
    "general": GENERAL,
    "judge": JUDGE,
    "model_based": MODEL_BASED,
    "custom": CUSTOM_FAMILY,
}
COMPONENTS: dict[str, Component] = {component.name: component for family in FAMILIES.values() for component in family}


def starting_components(judge: RewardComponent | None = None) -> list[RewardComponent]:
    """What a new spec begins with, and what a run without one is scored by: what judges the task weighs most (the
    environment's verdict, unless another is given), and tool calling shapes the rest; they sum to 1."""
    shaping = [part.model_copy(update={"weight": round(0.4 * part.weight, 6)}) for part in form_components()]
    return [judge or RewardComponent(name="task_success", weight=0.6), *shaping]


def form_components() -> list[RewardComponent]:
    """The five components of tool calling with the weights of SEED 2, which sum to 1: they pay for form alone.

    They score where nothing tells whether a task was done, and scored every run without a spec before 0.2.
    """
    return [RewardComponent(name=item.name, weight=item.default_weight) for item in TOOL_CALLING]


def components_of(jobs: Sequence[JobConfig]) -> list[RewardComponent]:
    """What rollouts are scored by that are of any of these jobs, which are the parts of a mix: their components or the
    default ones, each name once."""
    scored = [job.rewards.components or form_components() for job in jobs]
    return list({item.name: item for components in scored for item in components}.values())


def differently_scored(config: JobConfig) -> tuple[str, str] | None:
    """A component that two parts of a mix have under one name with other weights or parameters, and the later of these
    parts; ``None`` where there is none. A trainer has one weight for each name."""
    known: dict[str, RewardComponent] = {}
    for name, part in config.named_courses.items():
        for item in part.rewards.components or form_components():
            if known.setdefault(item.name, item) != item:
                return item.name, name
    return None


def require_one_meaning(config: JobConfig) -> None:
    """Raise ``ConfigError`` where two parts of a mix have a component of one name that is not the same: a trainer has
    one weight for each name."""
    if (found := differently_scored(config)) is not None:
        name, part = found
        text = _("The component `{name}` of part {part} differs from the one with this name in an earlier part.")
        hint = _("Give it a name of its own, and its function as `function`.")
        raise ConfigError(sentence(text, name=name, part=part), option="mix.parts", hint=hint)
