"""Sessions of environments: how many a run plays at once, and how many the servers hold.

A launch writes into the run's row what it plays, as ``<environment id>/<sessions>`` with spaces between them. Claims
and the forecast count these against the sessions that the answering servers of an environment hold together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import ValidationError

from training.config import JobConfig, kind_in, name_in
from training.errors import TiltyardError
from webapp.common.pools import TRAIN
from webapp.common.workers.models import UNREADABLE, Needs
from webapp.people.teams.models import Project


class Room(NamedTuple):
    """An environment, and how many sessions its answering servers hold together."""

    name: str
    slots: int

    def taken_by(self, at_once: int) -> int:
        """A run that plays more at once than there are takes all: more of them wait for their turn inside the run."""
        return min(at_once, self.slots)


def sessions_asked(config: JobConfig, resolved: JobConfig) -> dict[str, int]:
    """How many sessions of each environment, by its reference in ``config``, a job plays at once.

    Stages follow each other, so the largest counts. Parts of a mix share the groups of a step; with held-out tasks,
    those of one part may fill a whole step. ``environment.sessions`` bounds what each address gets.
    """
    found: dict[str, int] = {}
    played = config.courses if config.method.plays else []
    for asked, course in zip(played, resolved.courses if played else [], strict=True):
        name, at_once = asked.environment.name, course.rollouts_per_step
        if kind_in(name) != "environment":
            continue
        if config.mix.parts and not config.evaluate.every:
            at_once = math.ceil(course.rollout.prompts_per_step * _share_of(name, config, played)) * course.group_size
        if course.environment.sessions and course.environment.url:
            at_once = min(at_once, course.environment.sessions * (1 + len(course.environment.replicas)))
        found[name] = max(at_once, found.get(name, 0))
    return {name: at_once for name, at_once in found.items() if at_once}


def _share_of(environment: str, config: JobConfig, courses: Sequence[JobConfig]) -> float:
    """The share of a mix's groups that its parts with an environment get."""
    weights = [part.weight for part in config.mix.parts]
    own = (weight for weight, course in zip(weights, courses, strict=True) if course.environment.name == environment)
    return sum(own) / sum(weights)


def sessions_text(sessions: Mapping[UUID, int]) -> str:
    """Sessions by environment as a run's row has them; empty for none."""
    return " ".join(f"{pk}/{count}" for pk, count in sorted(sessions.items()))


def reserved_fields(
    pool: str, config: Mapping[str, Any], resolved: Mapping[str, Any], environments: Mapping[str, UUID]
) -> dict[str, str]:
    """The needs and the sessions that a launch writes into a run's row, from the configs that the row has and the
    environments of its project by name. Where this version cannot read them, the needs are ``UNREADABLE``."""
    try:
        asked, plain = JobConfig.model_validate(config), JobConfig.model_validate(resolved)
        found = {name_in("environment", name): count for name, count in sessions_asked(asked, plain).items()}
        needs = Needs.of(plain).text if pool == TRAIN else ""
    except (ValidationError, TiltyardError, ValueError):  # the last: configs that do not belong together
        return {"needs": UNREADABLE, "sessions": ""}
    known = {environments[name]: count for name, count in found.items() if name in environments}
    return {"needs": needs, "sessions": sessions_text(known)}


@lru_cache(maxsize=4096)
def sessions_in(text: str) -> Mapping[UUID, int]:
    """Sessions by environment of a run's row."""
    pairs = (each.split("/") for each in text.split())
    return {UUID(pk): int(count) for pk, count in pairs}


def rooms_of(projects: Collection[UUID]) -> dict[UUID, Room]:
    """The environments of projects whose answering servers all say how many sessions they hold, by id. Of the others it
    is not known, so nothing limits their runs."""
    # ``runs`` lies below ``environments``, so the rows are reached by their project.
    replica = "environments__replicas__"
    rows = Project.all_objects.filter(pk__in=projects, **{f"{replica}state": "healthy"}).order_by()
    found: dict[UUID, Room | None] = {}
    for pk, name, slots in rows.values_list("environments__pk", "environments__name", f"{replica}health__slots"):
        before = found.get(pk, Room(name, 0))
        found[pk] = None if before is None or slots is None else Room(name, before.slots + slots)
    return {pk: room for pk, room in found.items() if room is not None}
