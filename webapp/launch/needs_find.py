"""Find what presets need: the same way for the page that shows it and for the service that makes it."""

from __future__ import annotations

import re
from typing import Any

from django.db.models import QuerySet

from training.presets import DatasetNeed, EnvironmentNeed, Preset, RewardNeed, Size
from webapp.datasets.models import Dataset, DatasetState
from webapp.environments.models import DatasetOrder, Environment, OrderState
from webapp.environments.selectors import environments_of
from webapp.people.teams.models import Project
from webapp.rewards.models import RewardSpec
from webapp.rewards.services import stored_components
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.states import RunState

MAKES_PROBLEMS = "problems"  # the operation in a dataset's lineage
ENDED_BADLY = frozenset({RunState.FAILED, RunState.CANCELLED, RunState.DRAFT})


def environment_find(project: Project, need: EnvironmentNeed | None) -> Environment | None:
    """A server of the program that is started here with the wanted options; one that answers comes first."""
    if need is None:
        return None
    found = [item for item in environments_of(project) if _serves_need(item, need)]
    return min(found, key=lambda item: (item.healthy is not True, not item.wanted, item.created_at), default=None)


def _serves_need(environment: Environment, need: EnvironmentNeed) -> bool:
    program = environment.built_in
    if program is None or program.name != need.program:
        return False
    defaults = {option.name: option.default for option in program.options}
    return all(environment.arguments.get(name, defaults.get(name)) == value for name, value in need.arguments.items())


def order_find(environment: Environment, need: DatasetNeed) -> DatasetOrder | None:
    """The newest order of the same rows from a server of the same tasks; not of a dataset that was deleted since."""
    wanted = arguments_kept(environment, need)
    orders = DatasetOrder.objects.filter(
        environment__project=environment.project_id, command=need.command, arguments=wanted
    ).exclude(state=OrderState.DONE, dataset=None)
    shared = _shared_arguments(environment, need)
    same = (
        order
        for order in orders.select_related("environment", "dataset").order_by("-created_at")[:50]
        if order.environment.built_in == environment.built_in and _shared_arguments(order.environment, need) == shared
    )
    return min(same, key=_readiness_rank, default=None)


def _readiness_rank(order: DatasetOrder) -> int:
    """Rows that are there, then rows that come, then failures."""
    if order.dataset is not None and order.dataset.state == DatasetState.READY:
        return 0
    return 2 if order.state == OrderState.FAILED else 1


def arguments_kept(environment: Environment, need: DatasetNeed) -> dict[str, Any]:
    """The command's options as an order keeps them: without what equals a default."""
    program = environment.built_in
    options = program.datasets[need.command].options if program else []
    defaults = {option.name: option.default for option in options}
    return {name: value for name, value in need.arguments.items() if value != defaults.get(name)}


def _shared_arguments(environment: Environment, need: DatasetNeed) -> dict[str, Any]:
    program = environment.built_in
    names = {option.name for option in program.datasets[need.command].shared} if program else set()
    return {name: value for name, value in environment.arguments.items() if name in names}


def problems_find(project: Project, need: DatasetNeed) -> Dataset | None:
    """Our own word problems of the same kind."""
    made = Dataset.objects.filter(project=project, lineage__operation=MAKES_PROBLEMS)
    return made.filter(lineage__options=problem_options(need)).exclude(state=DatasetState.REJECTED).first()


def problem_options(need: DatasetNeed) -> dict[str, Any]:
    """What the generator is asked for."""
    return {**need.arguments, "shape": need.command}


def spec_find(project: Project, need: RewardNeed) -> RewardSpec | None:
    """The newest spec with the same components, under any name; the preset's own name first."""
    wanted = stored_components(list(need.components))
    found = [
        item
        for item in RewardSpec.objects.filter(project=project).order_by("-created_at")[:500]
        if item.components == wanted
    ]
    return min(found, key=lambda item: item.name != need.name, default=None)


def run_find(project: Project, preset: Preset, size: Size) -> Run | None:
    """The newest run of a preset that has succeeded, or may still: a run that starts from it then waits for it."""
    for run in runs_of(project, preset, size).order_by("-created_at")[:50]:
        if run.state not in ENDED_BADLY and (run.state != RunState.SUCCEEDED or _has_model(run)):
            return run
    return None


def runs_of(project: Project, preset: Preset, size: Size) -> QuerySet[Run]:
    """Runs that were named after a preset."""
    return Run.objects.filter(project=project, name__regex=rf"^{re.escape(preset.run_name(size))}-\d{{1,6}}$")


def _has_model(run: Run) -> bool:
    final = Checkpoint.objects.filter(run=run, final=True).order_by("-attempt", "-step").first()
    return final is not None and final.folder.is_dir()
