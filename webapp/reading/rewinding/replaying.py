"""One replay of a rollout without a continuation: to see whether its environment still answers as it did."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from training.errors import EnvironmentTimeout
from webapp.environments.models import Environment
from webapp.environments.playground.play import Play, PlayRefused, Reach, reach_of
from webapp.environments.playground.seats import leave, take
from webapp.people.teams.models import User
from webapp.reading.rewinding.scene import Scene, scene_of
from webapp.reading.rewinding.replay_view import check_view
from webapp.runs.rollouts.models import Rollout

REPLAY_LIMIT_S = 60.0


def replay(rollout: Rollout, user: User, turn: int | None = None) -> dict[str, Any]:
    """Play a rollout again up to a turn of the policy, or whole, and give the session back.

    Raises ``ValidationError`` where that cannot be done, and environment errors.
    """
    scene = scene_of(rollout)
    kept = len(scene.recording.turns) if turn is None else scene.kept(turn)
    with seated(scene.environment, user) as reach:
        return asyncio.run(_replay_once(reach, scene, kept))


@contextmanager
def seated(environment: Environment, user: User) -> Iterator[Reach]:
    """A person's seat at an environment as long as the block lasts. Raises ``ValidationError``."""
    try:
        reach = reach_of(environment)
    except PlayRefused as refused:
        raise ValidationError(str(refused)) from refused
    if not take(user.pk, environment.pk):
        said = _("You play this environment already, or four environments at once; end one of them first.")
        raise ValidationError(said)
    try:
        yield reach
    finally:
        leave(user.pk, environment.pk)


async def _replay_once(reach: Reach, scene: Scene, kept: int) -> dict[str, Any]:
    play = Play(reach, scene.environment.name)
    try:
        async with asyncio.timeout(REPLAY_LIMIT_S):
            found = await play.rewind(scene.recording, kept, tools=scene.tools, origin=scene.origin, again=False)
    except TimeoutError as exc:
        raise EnvironmentTimeout(f"The replay was not finished within {REPLAY_LIMIT_S:g} s.") from exc
    finally:
        await play.end()
    episode = play.episode
    messages = [] if episode is None else [message.model_dump(mode="json") for message in episode.messages]
    return {"environment": scene.environment.name, "messages": messages, **check_view(found)}
