"""What a model was made of: the runs that trained it, one after the other, and on what each was trained.

Only what runs recorded is told. A dataset is known by the folder that its reference meant, a spec without a version by
the components that were scored with; where neither leads to a row any more, the words of the config stand alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import ValidationError

from training.config import RewardComponent
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.registry.models import Checkpoint, ModelKind, RegisteredModel
from webapp.registry.weights import Weights, run_in, weights_of_checkpoint, weights_of_model, weights_of_run
from webapp.rewards.models import RewardSpec
from webapp.runs.config import config_of
from webapp.runs.models import Run, RunEvent
from webapp.teams.models import Project

MOST_STAGES = 16
_OF_DATASET = re.compile(r"/datasets/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/")


class Stage(NamedTuple):
    """A run on the way to a model, up to ``step``, and the weights that it gave on (``None``: no longer known).

    ``dataset``, ``spec`` and ``environment`` are the rows that it was trained on, where they are still there;
    ``started`` is what the trainer said of itself when it began.
    """

    run: Run
    step: int | None
    gave: Weights | None
    dataset: Dataset | None = None
    spec: RewardSpec | None = None
    environment: Environment | None = None
    started: dict[str, Any] = {}


class Origins(NamedTuple):
    """Where a model comes from, the last stage first. ``base`` is what the first stage began with: ``None`` where
    that is not recorded, or was deleted. ``cut`` tells that there are more stages than were read."""

    base: Weights | None
    stages: list[Stage]
    cut: bool = False

    @property
    def ancestors(self) -> list[Weights]:
        """All weights that the model comes from, the nearest first; none where it was not trained here."""
        if not self.stages:
            return []
        gave = [stage.gave for stage in self.stages[1:]]
        return [weights for weights in [*gave, self.base] if weights is not None]


def origins_of(model: RegisteredModel) -> Origins:
    """The way to a registered model."""
    if model.kind != ModelKind.RUN or model.checkpoint is None:
        return Origins(weights_of_model(model), [])
    found = origins_of_checkpoint(model.checkpoint)
    return found._replace(stages=_described(model.project, found.stages))


def origins_of_checkpoint(checkpoint: Checkpoint) -> Origins:
    """The way to a checkpoint, without what each stage was trained on."""
    return _walk(checkpoint.run, checkpoint.step, weights_of_checkpoint(checkpoint))


def trainers_of(project: Project, source: str) -> list[Run]:
    """The runs that trained the weights that a resolved config means, the last one first."""
    run = run_in(source)
    if run is None:
        return []
    rows = Run.objects.filter(project=project, pk=run).select_related("parent", "resume_checkpoint")
    return [stage.run for stage in _walk(rows.first(), None, None).stages]


def _walk(run: Run | None, step: int | None, gave: Weights | None) -> Origins:
    stages: list[Stage] = []
    while run is not None and all(stage.run.pk != run.pk for stage in stages):
        if len(stages) == MOST_STAGES:
            return Origins(None, stages, cut=True)
        stages.append(Stage(run, step, gave))
        if run.resume_step is not None:  # it went on with its parent's training, which may have been deleted since
            step, kept = run.resume_step, run.resume_checkpoint
            gave = weights_of_checkpoint(kept) if kept is not None else None
            run = run.parent
            continue
        gave = weights_of_run(run)
        if gave is None or gave.kind != ModelKind.RUN:
            return Origins(gave, stages)
        run, step = _run_of(run, gave)
    return Origins(None, stages)


def _run_of(later: Run, weights: Weights) -> tuple[Run | None, int | None]:
    """The run that left these weights, and the step of the checkpoint; the run alone where retention took it since."""
    attempt = weights.at.partition("/")[0]
    kept = Checkpoint.objects.filter(run=UUID(weights.name), path=weights.at, project=later.project_id)
    kept = kept.filter(attempt=int(attempt)) if attempt.isdigit() else kept
    found = kept.select_related("run__parent", "run__resume_checkpoint").first()
    if found is not None and found.run.removed_at is None:
        return found.run, found.step
    rows = Run.objects.filter(project=later.project_id, pk=weights.name)
    return rows.select_related("parent", "resume_checkpoint").first(), None


def _described(project: Project, stages: Sequence[Stage]) -> list[Stage]:
    """The stages with the rows that they were trained on: one query for each kind of row."""
    datasets = _datasets(project, [stage.run for stage in stages])
    specs = _specs(project, [stage.run for stage in stages])
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


def _datasets(project: Project, runs: Sequence[Run]) -> dict[Any, Dataset]:
    wanted: dict[Any, str] = {}
    for run in runs:
        if found := _OF_DATASET.search(str(run.resolved.get("data", {}).get("train") or "")):
            wanted[run.pk] = found[1]
    rows = {str(row.pk): row for row in Dataset.objects.filter(project=project, pk__in=set(wanted.values()))}
    return {pk: rows[text] for pk, text in wanted.items() if text in rows}


def _specs(project: Project, runs: Sequence[Run]) -> dict[Any, RewardSpec]:
    names = {run.pk: spec_name(run).partition("@") for run in runs if spec_name(run)}
    rows = list(RewardSpec.objects.filter(project=project, name__in={name for name, _at, _version in names.values()}))
    found: dict[Any, RewardSpec] = {}
    for run in runs:
        name, _at, version = names.get(run.pk, ("", "", ""))
        versions = sorted((row for row in rows if row.name == name), key=lambda row: -row.version)
        scored = run.resolved.get("rewards", {}).get("components")
        for row in versions:
            if str(row.version) == version if version else scored and _same(row.components, scored):
                found[run.pk] = row
                break
    return found


def _same(written: list[dict[str, Any]], scored: list[dict[str, Any]]) -> bool:
    """Whether a spec's components are what a run was scored with. What a launch adds to custom code does not count."""
    return [_plain(part) for part in written] == [_plain(part) for part in scored]


def _plain(part: dict[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = RewardComponent.model_validate(part).model_dump(mode="json")
    except ValidationError:  # written by a version that no longer fits
        return part
    return plain | {"params": {name: value for name, value in plain["params"].items() if name != "sha256"}}


def dataset_words(run: Run) -> str:
    """The dataset as the config names it; empty where the environment draws the tasks."""
    return str(run.config.get("data", {}).get("train") or "").removeprefix("dataset:")


def spec_name(run: Run) -> str:
    """The reward spec as the config names it, with its version where it has one."""
    return str(run.config.get("rewards", {}).get("spec") or "").removeprefix("reward:")


def environment_name(run: Run) -> str:
    """The environment as the config names it; empty where it was trained without one."""
    name = str(run.config.get("environment", {}).get("name") or "").removeprefix("environment:")
    return "" if name == "none" else name


def components_of(stage: Stage) -> list[RewardComponent]:
    """What the run was rewarded for; nothing where it does not play, or its config cannot be read."""
    config = config_of(stage.run)
    return config.rewards.components if config is not None and config.method.plays else []
