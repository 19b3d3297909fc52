"""Rollouts by scripted policies: the same loop, with a policy in the model's place. Needs neither torch nor a model."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import cast

from training.config import JobConfig, Policy
from training.dialects import DIALECTS, dialect_name
from training.errors import PolicyFault, boundary
from training.policy.engine import EngineFigures, Sample
from training.policy.scripted import POLICIES, Scene, WordTemplate
from training.rollout.replicas import Replicas
from training.rollout.trajectory import Player, Task, Trajectory
from training.rows import answer_of


class NoEngine:
    """No model computes anything."""

    version = 0
    figures = EngineFigures()

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Sample:
        """Never asked."""
        raise PolicyFault("Scripted policies sample nothing.")

    def release(self, episode: str) -> None:
        """Nothing is kept."""

    def sampling(self) -> AbstractContextManager[None]:
        """Nothing is prepared."""
        return nullcontext()

    def weights_changed(self) -> int:
        """There are none."""
        return self.version

    def close(self) -> None:
        """Nothing was started."""


@dataclass(frozen=True)
class ScriptedPlayer(Player):
    """Plays the policy that each task names. Turns are counted in words (``training.policy.scripted.speech``)."""

    template: WordTemplate
    dialect: str = "hermes"

    async def _sample(self, task: Task, trajectory: Trajectory) -> Sample:
        room = self.rollout.max_completion_tokens - trajectory.episode_ids
        room = min(self.rollout.max_turn_tokens, room)
        answer = answer_of(task.task)
        scene = Scene(trajectory.messages, trajectory.prompt_length, trajectory.tools, self.dialect, room, answer)
        with boundary(PolicyFault, f"playing {task.policy}"):
            text = POLICIES[cast(Policy, task.policy)](scene)
        ids = self.template.encode(text)[: room - 1]
        return Sample([*ids, self.template.eos_id], [0.0] * (len(ids) + 1), finished=True)


def scripted_player(config: JobConfig) -> ScriptedPlayer:
    """The player of a job that only scripted policies play."""
    return ScriptedPlayer(
        engine=NoEngine(),
        template=WordTemplate(),
        parse=DIALECTS[dialect_name(config)],
        rollout=config.rollout,
        environment=config.environment,
        open_session=Replicas(config.environment).open if config.environment.url else None,
        dialect=dialect_name(config),
    )
