"""The player of a job's model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

from envs.wire import Message
from training.config import JobConfig, Policy
from training.dialects import DIALECTS, ParsedTurn, dialect_name
from training.errors import PolicyFault, boundary
from training.journal import Event
from training.policy.engine import Engine, EngineFigures, Sample
from training.policy.scripted import POLICIES, Scene, WordTemplate
from training.rollout.family import read_by
from training.rollout.holding import Hold
from training.rollout.replicas import Replicas
from training.rollout.scoring import Scorer, Scoring
from training.rollout.tokens import ChatTemplate
from training.rollout.trajectory import Player, Rollout, Task, Trajectory
from training.rows import answer_of

# Rollouts by scripted policies: the same loop, with a policy in the model's place. Needs neither torch nor a model.


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
    """Plays the policy that each task names. Turns are counted in words (``training.policy.scripted``)."""

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


def scripted_turn(
    config: JobConfig, policy: Policy, messages: list[Message], prompt_length: int, tools: Tools | None, prefix: str
) -> ParsedTurn:
    """The next turn of a scripted policy in an episode of the job, of which ``messages`` were said so far, the first
    ``prompt_length`` of them by its prompt. The ids of its calls begin with ``prefix``."""
    dialect = dialect_name(config)
    scene = Scene(messages, prompt_length, tools, dialect, config.rollout.max_turn_tokens)
    return DIALECTS[dialect](POLICIES[policy](scene), prefix, tools)


def make_players(configs: Sequence[JobConfig], engine: Engine, template: ChatTemplate) -> list[Player]:
    """A player for each part of a mix. Parts with one environment share its slots."""
    servers: dict[str, Replicas] = {}
    return [
        make_player(
            config,
            engine,
            template,
            servers.setdefault(config.environment.model_dump_json(), Replicas(config.environment)),
        )
        for config in configs
    ]


def make_player(config: JobConfig, engine: Engine, template: ChatTemplate, servers: Replicas | None = None) -> Player:
    """Who plays the rollouts of a job: the engine, against the job's environment where it has one, on its ``servers``
    where another player uses them too."""
    return Player(
        engine=engine,
        template=template,
        parse=read_by(template.family, config),
        rollout=config.rollout,
        environment=config.environment,
        open_session=(servers or Replicas(config.environment)).open if config.environment.url else None,
    )


# --- Parts ----------------------------------------------------------------------------------------------------------
# What the rollouts of one part of a mix are played with; a job without a mix has one part without a name.


@dataclass(frozen=True)
class Part:
    """The rows from ``begin`` on, up to the next part's: ``player`` plays them, and ``scorer`` scores what was played.
    ``config`` is that of the part as a job by itself."""

    name: str
    begin: int
    config: JobConfig
    player: Player
    scorer: Scorer


@dataclass(frozen=True)
class Ground:
    """A part while it is played: its environment may be away, and its scoring stuck, without the others'."""

    name: str
    begin: int
    player: Player
    hold: Hold
    scoring: Scoring


def grounds_of(parts: Sequence[Part], write: Callable[[Event], None]) -> list[Ground]:
    """A ground for each part, in their order."""
    return [
        Ground(
            part.name,
            part.begin,
            part.player,
            Hold(part.config.environment, write, part.name),
            Scoring(part.scorer, part.config.rewards.score_timeout_s),
        )
        for part in parts
    ]


# --- Offered --------------------------------------------------------------------------------------------------------
# Which tools a group's prompts named, listed once: the same list comes with thousands of groups.

Tools = list[dict[str, Any]]


class Offered:
    """Remembers the lists of tools that an attempt's journal has."""

    def __init__(self) -> None:
        self._listed: set[str] = set()

    def of(self, members: Sequence[Rollout]) -> dict[str, Any]:
        """Fields of the group's event: the digest of its tools, with the list itself where the digest is new."""
        tools = next((rollout.trajectory.tools for rollout in members if rollout.trajectory.tools), None)
        if tools is None:
            return {}
        digest = hashlib.blake2b(json.dumps(tools, sort_keys=True).encode(), digest_size=8).hexdigest()
        fresh = digest not in self._listed
        self._listed.add(digest)
        return {"tools_digest": digest, "tools": tools} if fresh else {"tools_digest": digest}
