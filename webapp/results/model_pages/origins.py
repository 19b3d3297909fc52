"""The origins of a model: the runs that trained it, one after the other, and the data of each.

Only recorded facts are shown. A dataset is found by the folder of its resolved reference, a spec without a version by
its resolved components; where neither has a row any more, only the words of the config are shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from training.config import RewardComponent
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.launch.learned.ancestry import Origins, Stage, origins_of_checkpoint
from webapp.people.teams.models import Project
from webapp.rewards.models import RewardSpec
from webapp.runs.config import all_components, config_of
from webapp.runs.models import Run, RunEvent
from webapp.runs.registry.models import ModelKind, RegisteredModel
from webapp.runs.registry.weights import weights_of_model

_OF_DATASET = re.compile(r"/datasets/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/")


def origins_of(model: RegisteredModel) -> Origins:
    """The way to a registered model."""
    if model.kind != ModelKind.RUN or model.checkpoint is None:
        return Origins(weights_of_model(model), [])
    found = origins_of_checkpoint(model.checkpoint)
    return found._replace(stages=_with_rows(model.project, found.stages))


def _with_rows(project: Project, stages: Sequence[Stage]) -> list[Stage]:
    """The stages with the rows that they were trained on: one query for each kind of row."""
    datasets = _datasets_of(project, [stage.run for stage in stages])
    specs = _specs_of(project, [stage.run for stage in stages])
    names = {environment_name(stage.run) for stage in stages} - {""}
    places = Environment.objects.filter(project=project, name__in=names)
    environments = {item.name: item for item in places} if names else {}
    started: dict[Any, dict[str, Any]] = {}
    events = RunEvent.objects.filter(run__in=[stage.run.pk for stage in stages], kind="attempt").order_by("seq")
    for run_id, payload in events.values_list("run_id", "payload"):
        if "device" in payload or "versions" in payload:
            started[run_id] = payload
    return [
        stage._replace(
            dataset=datasets.get(stage.run.pk),
            spec=specs.get(stage.run.pk),
            environment=environments.get(environment_name(stage.run)),
            started=started.get(stage.run.pk, {}),
        )
        for stage in stages
    ]


def _datasets_of(project: Project, runs: Sequence[Run]) -> dict[Any, Dataset]:
    wanted: dict[Any, str] = {}
    for run in runs:
        if found := _OF_DATASET.search(str(run.resolved.get("data", {}).get("train") or "")):
            wanted[run.pk] = found[1]
    rows = {str(row.pk): row for row in Dataset.objects.filter(project=project, pk__in=set(wanted.values()))}
    return {pk: rows[text] for pk, text in wanted.items() if text in rows}


def _specs_of(project: Project, runs: Sequence[Run]) -> dict[Any, RewardSpec]:
    names = {run.pk: spec_name(run).partition("@") for run in runs if spec_name(run)}
    rows = list(RewardSpec.objects.filter(project=project, name__in={name for name, _at, _version in names.values()}))
    found: dict[Any, RewardSpec] = {}
    for run in runs:
        name, _at, version = names.get(run.pk, ("", "", ""))
        versions = sorted((row for row in rows if row.name == name), key=lambda row: -row.version)
        scored = run.resolved.get("rewards", {}).get("components")
        for row in versions:
            if str(row.version) == version if version else scored and _same_components(row.components, scored):
                found[run.pk] = row
                break
    return found


def _same_components(written: list[dict[str, Any]], scored: list[dict[str, Any]]) -> bool:
    """Whether a spec's components are what a run was scored with. The hash that a launch adds to custom code does not
    count."""
    return [_normalised_part(part) for part in written] == [_normalised_part(part) for part in scored]


def _normalised_part(part: dict[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = RewardComponent.model_validate(part).model_dump(mode="json")
    except ValidationError:  # written by a version that no longer fits
        return part
    return plain | {"params": {name: value for name, value in plain["params"].items() if name != "sha256"}}


def dataset_words(run: Run) -> str:
    """The dataset as the config names it; empty where the environment draws the tasks."""
    return str(run.config.get("data", {}).get("train") or "").removeprefix("dataset:")


def parts_words(run: Run) -> str:
    """The parts of a mix with their weights, their data and environments, as the config names them; else nothing."""
    found = []
    for part in run.config.get("mix", {}).get("parts") or []:
        own = ((part.get(group) or {}).get(option) for group, option in (("data", "train"), ("environment", "name")))
        names = [str(name).partition(":")[2] or str(name) for name in own if name]
        found.append(f"{part['name']} × {part.get('weight', 1):g}" + (f" ({', '.join(names)})" if names else ""))
    return "; ".join(found)


def spec_name(run: Run) -> str:
    """The reward spec as the config names it, with its version where it has one."""
    return str(run.config.get("rewards", {}).get("spec") or "").removeprefix("reward:")


def environment_name(run: Run) -> str:
    """The environment as the config names it; empty where it was trained without one."""
    name = str(run.config.get("environment", {}).get("name") or "").removeprefix("environment:")
    return "" if name == "none" else name


def components_of(stage: Stage) -> list[RewardComponent]:
    """The components of the run's rewards; empty where it does not play, or its config cannot be read."""
    config = config_of(stage.run)
    if config is None or not config.method.plays:
        return []
    return all_components(config) if config.mix.parts else config.rewards.components
