"""A recorded rollout as something to play again: what the environment is given, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from tests.webapp.reading.rewinding.conftest import GROUP, ROW, STEP, TALK, Said
from training.rollout.rewinding import mix_seed
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.reading.rewinding import scene as module
from webapp.reading.rewinding.scene import scene_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn

pytestmark = pytest.mark.django_db(transaction=True)
Make = Callable[..., Any]


def test_it_has_the_row_the_seed_and_every_turn_with_its_answer(
    played: Make, tasks: Dataset, environment: Environment
) -> None:
    rollout = played()
    scene = scene_of(rollout)
    row = json.loads(tasks.rows_path.read_text().splitlines()[ROW])
    reset = scene.recording.reset
    assert (reset.task, reset.seed) == (row, mix_seed(7, STEP, GROUP) % 2**31)
    assert scene.environment == environment and scene.origin == "dataset:products@1#5" and scene.step == STEP
    assert [part.name for part in scene.components] == ["task_success", "tool_necessity"]
    turns = scene.recording.turns
    assert [taken.said.content for taken in turns] == [each.text for each in TALK]
    assert [taken.parse_error for taken in turns] == [None, "The tool call is not valid JSON.", None, None]
    assert [len(taken.answer) for taken in turns] == [1, 1, 1, 0] and turns[2].answer[0].content == "20"
    assert scene.recording.first[-1].content == "What is 4 * 5?" == scene.recording.prompt[-1].content
    assert scene.recording.reward == rollout.env_reward == 1.0


def test_turns_count_from_1_to_the_last_that_can_be_taken_otherwise(played: Make) -> None:
    ended, cut = scene_of(played()), scene_of(played(TALK[:2], index=1, status="truncated"))
    assert (ended.last, cut.last) == (4, 3)
    assert [ended.kept(turn) for turn in (1, 4)] == [0, 3] and cut.kept(3) == 2
    assert cut.recording.reward is None  # where it was cut off, how it would have ended is not known
    for scene, turn in ((ended, 0), (ended, 5), (cut, 4)):
        with pytest.raises(ValidationError, match=f"turns 1 to {scene.last}"):
            scene.kept(turn)


def test_a_rollout_of_an_evaluation_has_the_seed_of_its_task(played: Make, run: Run) -> None:
    rollout = played()
    Rollout.objects.filter(pk=rollout.pk).update(held_out=True)
    run.resolved["evaluate"]["data"] = ""
    run.save()
    rollout.refresh_from_db()
    assert scene_of(rollout).recording.reset.seed == mix_seed(7, ROW) % 2**31


def _forget_dataset(rollout: Rollout, tasks: Dataset) -> None:
    tasks.rows_path.unlink()


def _forget_environment(rollout: Rollout, tasks: Dataset) -> None:
    Environment.objects.all().delete()


def _forget_turns(rollout: Rollout, tasks: Dataset) -> None:
    Turn.objects.all().delete()


def _imported(rollout: Rollout, tasks: Dataset) -> None:
    Run.objects.update(imported_from="verl")


def _alone(rollout: Rollout, tasks: Dataset) -> None:
    resolved = rollout.run.resolved | {"environment": {}}
    Run.objects.update(resolved=resolved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_forget_dataset, "row that this rollout played is gone"),
        (_forget_environment, "“arithmetic” is not registered"),
        (_forget_turns, "No turn of this rollout was recorded"),
        (_imported, "Another trainer played"),
        (_alone, "without an environment"),
    ],
)
def test_what_cannot_be_played_again_says_why(
    change: Callable[[Rollout, Dataset], None], message: str, played: Make, tasks: Dataset
) -> None:
    rollout = played()
    scene_of(rollout)
    change(rollout, tasks)
    with pytest.raises(ValidationError, match=message):
        scene_of(Rollout.objects.select_related("run").get(pk=rollout.pk))


def test_rollouts_beyond_the_limit_are_refused(played: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    rollout = played([Said(expression="1 + 1")] * 3)
    monkeypatch.setattr(module, "MAX_TURNS", 3)
    scene_of(rollout)
    monkeypatch.setattr(module, "MAX_TURNS", 2)
    with pytest.raises(ValidationError, match="beyond 2 turns"):
        scene_of(rollout)
    monkeypatch.setattr(module, "MAX_BYTES", 10)
    monkeypatch.setattr(module, "MAX_TURNS", 3)
    with pytest.raises(ValidationError, match="are not rewound"):
        scene_of(rollout)
