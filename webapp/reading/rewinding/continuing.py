"""Scripted policies continue from a turn of a rollout: the reward that a contestant that knows nothing would get."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from training.config import JobConfig, Policy
from training.dialects import DIALECTS, dialect_name
from training.errors import EnvironmentTimeout
from training.policy.scripted import POLICIES, Scene
from training.rollout.rewinding import Taken
from webapp.environments.playground.episode import Played
from webapp.environments.playground.play import Play, PlayRefused
from webapp.people.teams.models import User
from webapp.reading.parts import config_for
from webapp.reading.rewinding import scene as scenes
from webapp.reading.rewinding.models import Branch
from webapp.reading.rewinding.played import REPLAY_LIMIT_S, seated
from webapp.reading.rewinding.scene import scored
from webapp.reading.rewinding.services import Took, branch_keep
from webapp.runs.rollouts.models import Rollout


def rollout_continue(*, rollout: Rollout, user: User, turn: int, policies: Sequence[Policy]) -> list[Branch]:
    """A branch of each policy, kept and scored. Raises ``ValidationError``, environment errors."""
    config = config_for(rollout)
    if not policies or config is None:
        raise ValidationError({"policies": _("Choose who continues.")})
    scene = scenes.scene_of(rollout)
    kept = scene.kept(turn)
    with seated(scene.environment, user) as reach:
        made = asyncio.run(
            _in_time([_Going(Play(reach, scene.environment.name), config, name) for name in policies], scene, kept)
        )
    branches = []
    for name, (episode, same, start) in zip(policies, made, strict=True):
        score = scored(episode.scored_as(), scene.components, scene.step, user.pk)
        took = Took(turn, start, same)
        branches.append(branch_keep(rollout=rollout, user=user, episode=episode, took=took, score=score, player=name))
    return branches


Gone = tuple[Played, bool, int]


class _Going:
    """One policy that continues."""

    def __init__(self, play: Play, config: JobConfig, policy: Policy) -> None:
        self.play, self._config, self._policy = play, config, policy

    async def run(self, scene: scenes.Scene, kept: int, *, again: bool) -> Gone:
        """Rewind, and play to the end or to the run's limit of turns; then the environment is asked for its verdict."""
        found = await self.play.rewind(scene.recording, kept, tools=scene.tools, origin=scene.origin, again=again)
        episode = self.play.episode
        assert episode is not None  # noqa: S101 - a replay that came to an end made one
        start = len(episode.messages)
        if found.over:
            raise ValidationError({"turn": _("The episode is over here; choose an earlier turn to continue from.")})
        for _number in range(max(1, self._config.rollout.max_turns - kept)):
            await self.play.take(episode, self._scripted_turn(episode))
            if not self.play.is_open:
                break
        await self.play.give_up()
        return episode, found.difference is None and found.checked, start

    def _scripted_turn(self, episode: Played) -> Taken:
        dialect = dialect_name(self._config)
        limit = self._config.rollout.max_turn_tokens
        said = POLICIES[self._policy](Scene(episode.messages, episode.prompt_length, episode.tools, dialect, limit))
        turn = DIALECTS[dialect](said, f"call_{episode.turns}_", episode.tools)
        return Taken(turn.message(), [], turn.parse_error)


async def _in_time(going: Sequence[_Going], scene: scenes.Scene, kept: int) -> list[Gone]:
    """One after another: together they take one slot."""
    found: list[Gone] = []
    try:
        async with asyncio.timeout(REPLAY_LIMIT_S):
            for number, each in enumerate(going):
                found.append(await each.run(scene, kept, again=number > 0))
    except TimeoutError as exc:
        raise EnvironmentTimeout(f"The policies were not finished within {REPLAY_LIMIT_S:g} s.") from exc
    except PlayRefused as refused:
        raise ValidationError(str(refused)) from refused
    finally:
        for each in going:
            await each.play.end()
    return found
