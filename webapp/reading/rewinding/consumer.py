"""The socket of a rewound rollout: as the playground's, with episodes that begin at a turn of a recorded one."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404
from pydantic import Field, TypeAdapter

from training.rollout.rewinding import Rewound
from webapp.environments.models import Environment
from webapp.environments.playground.consumer import PlayConsumer
from webapp.environments.playground.play import MAX_SEED, Command, Played, Playing
from webapp.live.consumers import FORBIDDEN, GONE, LOGIN, Closed, user_now
from webapp.people.teams.models import Role, User
from webapp.reading.rewinding.models import Branch
from webapp.reading.rewinding.scene import Scene, check_view, environment_of, scene_of, scored
from webapp.reading.rewinding.services import Took, branch_keep
from webapp.reading.selectors import rollout_for
from webapp.runs.rollouts.models import Rollout

# --- Commands -------------------------------------------------------------------------------------------------------
# The commands of a rewound rollout's socket: those of the playground, and where to begin.


class Rewind(Command):
    """Bring the environment to its state before the policy's ``turn``; an episode that is open ends."""

    type: Literal["rewind"]
    turn: int = Field(ge=1, le=MAX_SEED)


REWINDING: TypeAdapter[Any] = TypeAdapter(Annotated[Playing | Rewind, Field(discriminator="type")])


class RewindConsumer(PlayConsumer):
    """One tab in which a person continues from a turn of a recorded rollout."""

    known = REWINDING
    judges = True
    scene: Scene | None = None

    def _find(self, *, again: bool) -> tuple[User, Environment]:
        user = user_now(self.scope)
        if not user.is_authenticated:
            raise Closed(LOGIN)
        rollout_id: UUID = self.scope["url_route"]["kwargs"]["rollout_id"]
        try:
            self.rollout: Rollout = rollout_for(user, rollout_id, need=Role.EDITOR)
            return user, environment_of(self.rollout)  # type: ignore[return-value]
        except PermissionDenied as exc:
            raise Closed(FORBIDDEN) from exc
        except Http404 as exc:
            raise Closed(FORBIDDEN if again else GONE) from exc
        except ValidationError as exc:  # the page has shown why
            raise Closed(GONE) from exc

    async def _begin_episode(self, command: Rewind) -> None:
        scene = await self._in_thread(scene_of, self.rollout)
        kept = scene.kept(command.turn)
        play, again = await self._new_play()
        found = await play.rewind(scene.recording, kept, tools=scene.tools, origin=scene.origin, again=again)
        episode = play.episode
        assert episode is not None  # noqa: S101 - a replay that came to an end made one
        self.scene = scene
        same = found.difference is None and found.checked
        self.took = Took(command.turn, len(episode.messages), same)
        episode.past = {"rollout": str(self.rollout.pk), "turn": command.turn}
        await self._send_opened(command.turn, episode, found)

    async def _send_opened(self, turn: int, episode: Played, found: Rewound) -> None:
        await self._send_state(
            "opened",
            messages=episode.messages,
            prompt=episode.prompt_length,
            seconds=found.seconds,
            seed=episode.seed,
            turn=turn,
            check=check_view(found),
        )

    async def _on_left(self, episode: Played) -> None:
        if self.scene is not None:
            await self._in_thread(self._keep_branch, self.scene, episode)

    async def _on_over(self, episode: Played) -> None:
        """Score the branch as the rollout was scored, and keep it."""
        if self.scene is None:
            return
        branch = await self._in_thread(self._keep_branch, self.scene, episode)
        shown = {"id": str(branch.pk), "outcome": branch.outcome, "outcome_title": branch.get_outcome_display()}
        score = {"parts": branch.parts, "missing": branch.missing, "reward": branch.reward}
        await self._send_frame("scored", **score, branch=shown)

    def _keep_branch(self, scene: Scene, episode: Played) -> Branch:
        score = scored(episode.scored_as(), scene.components, scene.step, self.user_id)
        user = User.objects.filter(pk=self.user_id).first()
        return branch_keep(rollout=self.rollout, user=user, episode=episode, took=self.took, score=score)
