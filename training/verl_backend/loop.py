"""verl's agent loop that plays our player. verl makes one for each rollout; they share the ``Actor`` of the process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from training.errors import TiltyardError
from training.rollout.tokens import ChatTemplate
from training.verl_backend.actor import Actor, Lesson, error_of
from training.verl_backend.beats import begin_beating
from training.verl_backend.engine import ServerEngine
from training.verl_backend.folder import JobFolder
from training.verl_backend.lost import LOST

_actors: dict[str, Actor] = {}


class PlayerLoop(AgentLoopBase):
    """One rollout."""

    def __init__(self, folder: str, **of_verl: Any) -> None:
        """``folder`` is the job folder, named in the file of agent loops."""
        super().__init__(**of_verl)
        self._folder = folder

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Play it. An error that ends the run comes to the trainer with the row: verl would go on without it."""
        actor = self._actor()
        prompts = actor.config.rollout.prompts_per_step
        sampling, group, index = int(row["global_steps"]), int(row["place"]) % prompts, int(row["session_id"])
        try:
            lesson = await actor.play(sampling, group, index)
        except TiltyardError as error:
            eos = self.tokenizer.eos_token_id
            lesson = Lesson([eos], [eos], [0], [0.0], 0.0, {"fatal": error_of(error)})
        return _output(lesson, sampling - 1)

    def _actor(self) -> Actor:
        if self._folder not in _actors:
            folder = JobFolder(Path(self._folder))
            folder.take_variables()
            begin_beating(folder.path)
            template = ChatTemplate(self.tokenizer)
            engine = ServerEngine.of(self.server_manager, folder.config, template, LOST)
            _actors[self._folder] = Actor.opened(folder, engine, template)
        return _actors[self._folder]


def _output(lesson: Lesson, trained: int) -> AgentLoopOutput:
    """The row in verl's shape. Its reward is ours, 0 where it has none; what is learned is the advantage."""
    return AgentLoopOutput(
        prompt_ids=lesson.prompt_ids,
        response_ids=lesson.completion_ids,
        response_mask=lesson.mask,
        response_logprobs=lesson.logprobs,
        reward_score=lesson.facts.get("reward") or 0.0,
        num_turns=lesson.facts.get("turns", 0),
        metrics=AgentLoopMetrics(),
        extra_fields={
            "advantage": lesson.advantage,
            "facts": lesson.facts,
            "min_global_steps": trained,
            "max_global_steps": trained,
            "reward_extra_info": {},
        },
    )
