"""Making what a preset needs, step by step: each call does what can be done now, and may be repeated.

The environment is registered and started, the dataset ordered from it, the reward spec saved, and the run to start from
launched once its own dataset is there. What exists is used; what failed is tried again only when a person asks.
"""

from __future__ import annotations

import json
from typing import Any

from django.core.exceptions import ValidationError
from django.core.files.base import ContentFile
from django.db import transaction
from django.utils.translation import gettext as _

from training.data.making.word_problems import word_problems
from training.errors import ConfigError
from training.presets import WORD_PROBLEMS, DatasetNeed, EnvironmentNeed, Preset, Size, StartNeed, presets
from webapp.datasets.models import Dataset
from webapp.datasets.services import dataset_create
from webapp.engine.services import run_create
from webapp.environments.builtin import builtins
from webapp.environments.models import Environment, Kind, OrderState
from webapp.environments.orders import order_create, order_room
from webapp.environments.services import environment_launch, environment_scale
from webapp.launch.forms import suggested_name
from webapp.launch.needs import filled, situation
from webapp.launch.needs_find import (
    MAKES_PROBLEMS,
    environment_find,
    order_find,
    problem_options,
    problems_find,
    run_find,
    spec_find,
)
from webapp.people.teams.models import Project, User
from webapp.rewards.services import reward_spec_save

FEWEST_SESSIONS, MOST_SESSIONS = 128, 1024  # of one server; further sessions wait for their turn


@transaction.atomic
def needs_make(*, project: Project, user: User, preset: Preset, size: Size, again: bool = False) -> None:
    """Make what is missing and can be made now. ``again`` repeats what failed. Raises ``ValidationError``."""
    # Two clicks at once take turns, so that the second finds what the first has made.
    Project.objects.select_for_update().get(pk=project.pk)
    wanted = preset.needs_for(size)
    sessions = preset.config_for(size).rollouts_per_step
    environment = _make_environment(project, user, wanted.environment, sessions, again=again)
    if wanted.dataset is not None:
        _make_dataset(project, user, wanted.dataset, environment, preset.run_name(size), again=again)
    if wanted.reward is not None and spec_find(project, wanted.reward) is None:
        reward_spec_save(project=project, user=user, name=wanted.reward.name, components=list(wanted.reward.components))
    if wanted.start is not None and wanted.start.preset:
        _make_starting_run(project, user, wanted.start, size, again=again)


def _make_environment(
    project: Project, user: User, need: EnvironmentNeed | None, sessions: int, *, again: bool
) -> Environment | None:
    """``sessions`` are those of one step: its rollouts are played at once, as far as one server can."""
    if need is None:
        return None
    found = environment_find(project, need)
    if found is not None:
        if again and not found.wanted:
            environment_scale(environment=found, wanted=1)
        return found
    program = builtins()[need.program]
    return environment_launch(
        project=project,
        user=user,
        name=_free_name(project, need.program),
        kind=Kind.PROCESS,
        program=need.program,
        arguments=dict(need.arguments),
        slots=max(FEWEST_SESSIONS, min(sessions, MOST_SESSIONS)),
        cpus=program.cpus,
        memory_mb=program.memory_mb,
    )


def _free_name(project: Project, stem: str) -> str:
    taken = set(Environment.objects.filter(project=project, name__startswith=stem).values_list("name", flat=True))
    numbered = (f"{stem}-{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (stem, *numbered) if name not in taken)


def _make_dataset(
    project: Project, user: User, need: DatasetNeed, environment: Environment | None, name: str, *, again: bool
) -> None:
    if need.program == WORD_PROBLEMS:
        if problems_find(project, need) is None:
            _create_word_problems(project, user, need, name)
        return
    if environment is None:
        raise ValidationError(_("There is no environment to ask for the rows."))
    order = order_find(environment, need)
    if order is None and not order_room(project):
        return  # other presets are ahead; a later call asks for it
    if order is None or (again and order.state == OrderState.FAILED):
        order_create(environment=environment, user=user, name=name, command=need.command, arguments=need.arguments)


def _create_word_problems(project: Project, user: User, need: DatasetNeed, name: str) -> Dataset:
    """Written here: 10,000 take a third of a second."""
    options: dict[str, Any] = problem_options(need)
    lines = [json.dumps(row, ensure_ascii=False) for row in word_problems(**options)]
    file = ContentFile("".join(f"{line}\n" for line in lines).encode())
    made = dataset_create(project=project, user=user, name=name, file=file, file_name="problems.jsonl")
    made.lineage = {"operation": MAKES_PROBLEMS, "options": options, "parents": [], "rows": len(lines)}
    made.save(update_fields=["lineage"])
    return made


def _make_starting_run(project: Project, user: User, need: StartNeed, size: Size, *, again: bool) -> None:
    known = presets()
    if need.after and run_find(project, known[need.after], size) is not None:
        return
    first = known[need.preset]
    if run_find(project, first, size) is not None:
        return
    needs_make(project=project, user=user, preset=first, size=size, again=again)
    now = situation(project, first, size)
    if not all(item.usable for item in now.needs):
        return  # the next call continues
    config = filled(first, size, now)
    name = suggested_name(project, config, stem=first.run_name(size))
    try:
        run_create(project=project, user=user, name=name, config=config)
    except ConfigError as exc:
        raise ValidationError(exc.sentence) from exc
