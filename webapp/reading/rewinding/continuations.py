"""A contestant continues from a turn of a rollout, several times: rollouts of a run of kind `evaluate` are branches.

A model needs a device, an endpoint has a budget, and both take time: a run handles all of that already, and each branch
is a rollout with its tokens and reasons. Judges and reward models are asked, as in every run.
"""

from __future__ import annotations

from dataclasses import replace

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from training.config import EvaluateConfig, JobConfig, Reference, RewardComponent
from training.rewards.combining import factor
from training.rollout.past import Past, write_past
from webapp.common.storage import rewind_file
from webapp.engine.services import run_create
from webapp.evaluation.suites.services import may_play, with_contestant
from webapp.launch.forms import suggested_name
from webapp.people.teams.models import User
from webapp.reading.parts import config_for
from webapp.reading.rewinding.models import Continuation
from webapp.reading.rewinding.scene import Scene, scene_of
from webapp.reading.rows import dataset_of
from webapp.runs.config import of_step
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn

MAX_TIMES = 16
USUAL_TIMES = 4


def continuation_create(
    *, rollout: Rollout, user: User | None, turn: int, contestant: str, times: int, temperature: float | None = None
) -> Run:
    """Queue a run that continues from the policy's ``turn``; without a ``temperature`` at that of the recorded run.

    Raises ``ValidationError`` by field or with a sentence, and ``ConfigError`` with the option.
    """
    if not may_play(contestant):
        raise ValidationError({"contestant": _("Choose who plays.")})
    if not 1 <= times <= MAX_TIMES:
        raise ValidationError({"times": _("Choose 1 to %(n)s times.") % {"n": MAX_TIMES}})
    scene = scene_of(rollout)
    kept = scene.kept(turn)
    config = _continuation_job(rollout, scene, turn, times, temperature)
    write_past(rewind_file(rollout.run_id, rollout.pk, turn), _past_until(rollout, scene, kept))
    project = rollout.run.project
    stem = f"branch-{rollout.step}.{rollout.group}.{rollout.index}-turn-{turn}"
    with transaction.atomic():
        name = suggested_name(project, config, stem=stem)
        run = run_create(project=project, user=user, name=name, config=with_contestant(config, contestant))
        Continuation.objects.create(run=run, rollout=rollout, turn=turn, contestant=contestant[:200])
    return run


def _past_until(rollout: Rollout, scene: Scene, kept: int) -> Past:
    said = Turn.objects.filter(rollout=rollout, messages__0__role="assistant").order_by("number")
    tokens = list(said.values_list("tokens", flat=True)[:kept])
    recording = replace(scene.recording, turns=scene.recording.turns[:kept], reward=None)
    return Past(rollout.row or 0, recording, tokens)


def _continuation_job(rollout: Rollout, scene: Scene, turn: int, times: int, temperature: float | None) -> JobConfig:
    """The run's job at the rollout's step, as an evaluation of its one task."""
    run, resolved = rollout.run, config_for(rollout)
    assert resolved is not None  # noqa: S101 - a scene was made of it
    meant = of_step(run, JobConfig.model_validate(run.config), rollout.step, rollout.part)
    dataset = dataset_of(rollout, resolved)
    sampling = {"num_generations": times, "prompts_per_step": 1}
    asked = {} if temperature is None else {"temperature": temperature}
    spec = {"spec": "", "components": [_with_weight_at(part, scene.step) for part in scene.components]}
    # Another draw each time: the same seed would give the same answer again.
    seed = (meant.run.seed + Continuation.objects.filter(rollout=rollout).count()) % 2**31
    groups = {
        "kind": "evaluate",
        "environment": meant.environment,
        "vllm": meant.vllm,
        "data": meant.data.model_copy(update={"train": dataset.reference if dataset is not None else ""}),
        "rewards": resolved.rewards.model_copy(update=spec),
        "rollout": meant.rollout.model_copy(update=sampling | asked),
        "evaluate": EvaluateConfig(continue_from=str(Reference("rollout", f"{rollout.pk}@{turn}"))),
        "run": meant.run.model_copy(update={"seed": seed}),
    }
    return JobConfig.model_validate(JobConfig().model_copy(update=groups).model_dump())


def _with_weight_at(part: RewardComponent, step: int) -> RewardComponent:
    """A component with the weight that it had at a step: an evaluation weighs as schedules end."""
    return part.model_copy(update={"weight": part.weight * factor(part.schedule, step), "schedule": None})
