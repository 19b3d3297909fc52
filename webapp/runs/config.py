"""A run's config, read."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Q
from pydantic import ValidationError

from training.config import JobConfig, RewardComponent
from training.rewards.registry import COMPONENTS
from webapp.runs.models import Run
from webapp.text import translated


def config_of(run: Run) -> JobConfig | None:
    """The config that the run has or had; ``None`` when it was written by a version that no longer fits."""
    try:
        return JobConfig.model_validate(run.resolved or run.config)
    except ValidationError:
        return None


def having(group: str, option: str, value: str, *, config: str = "config") -> Q:
    """Runs whose config, or one of its stages, has this value; ``config`` is the column that is looked at."""
    of_a_stage = {f"{config}__curriculum__stages__contains": [{group: {option: value}}]}
    return Q(**{f"{config}__{group}__{option}": value}) | Q(**of_a_stage)


def title_of(part: RewardComponent) -> str:
    """A component as a page names it: its function's title, and its own name where that is another one."""
    known = COMPONENTS.get(part.registered)
    title = translated(known.title) if known else part.registered
    return title if part.registered == part.name else f"{title} ({part.name})"


def component_titles(components: Iterable[RewardComponent]) -> dict[str, str]:
    """What each component of the spec is called, in the spec's order, which gives the colours: as in the lab."""
    return {part.name: title_of(part) for part in components}
