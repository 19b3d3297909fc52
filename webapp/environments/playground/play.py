"""One person's session with one environment: at most one episode is open, and its slot is given back in every case."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import suppress
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from envs.wire import Message, Observation, ResetRequest, StepRequest
from training.config import EnvironmentConfig
from training.connections import Access, reaching
from training.errors import EnvironmentFault, EnvironmentFull, TiltyardError
from training.plain import json_problem
from training.rollout import protocols
from training.rollout.rewinding import Recording, Rewound, Taken, rewind
from training.rollout.session import Session
from training.rollout.tokens import Tools
from webapp.common.outbound import access, target_of
from webapp.common.text import clean_json
from webapp.environments.models import Environment
from webapp.environments.playground.commands import Step
from webapp.environments.playground.episode import Played
from webapp.environments.playground.tasks import Start
from webapp.environments.tokens import ours, token_for

MAX_TURNS = 200
MAX_TRANSCRIPT_BYTES = 8 << 20
FULL_AGAIN_S = 0.5  # until then it has noticed that the tab left its other session
VERDICT_LIMIT_S = 5.0


class PlayRefused(Exception):
    """What was asked cannot be done now; the text is a sentence for the person."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Reach(NamedTuple):
    """The config by which an environment is reached, the allowed addresses and the token."""

    config: EnvironmentConfig
    access: Access


def reach_of(environment: Environment) -> Reach:
    """The reach of a registration as it is now. Raises ``OutboundRefused``, and ``PlayRefused`` for an unusable one."""
    try:
        config = EnvironmentConfig.model_validate(environment.job_values())
    except ShapeError as exc:
        sentence = _("This environment's registration is not complete; check it on the environments page.")
        raise PlayRefused("registration", sentence) from exc
    pairs = ours(environment)
    target_of(config.url, ours=pairs)  # its sentences are in the person's language; connecting checks once more
    return Reach(config, access(token_for(environment, config.url), pairs))


async def open_session(reach: Reach) -> Session:
    """The one place where the playground connects."""
    with reaching(reach.access):
        return await protocols.open_session(reach.config)


class Play:
    """One episode and its session. Only one of its methods runs at a time; the socket sees to that."""

    def __init__(self, reach: Reach, name: str) -> None:
        self._reach, self._name = reach, name
        self._session: Session | None = None
        self.episode: Played | None = None

    @property
    def is_open(self) -> bool:
        """Whether a slot of the environment is held."""
        return self._session is not None

    async def reset(self, start: Start, seed: int, *, again: bool) -> list[Message]:
        """Begin the episode on a session of its own. Raises environment errors; then nothing is open.

        ``again``: the tab has just left another session of this environment.
        """
        episode = Played(uuid.uuid4().hex, self._name, start.task, seed, start.origin)
        self._session = await self._connect(again=again)
        try:
            request = ResetRequest(task=start.task, seed=seed, episode_id=episode.id)
            first = await self._session.reset(request)
        except BaseException:
            await self.end()
            raise
        shown = episode.begin(start.messages, start.tools, _clean_observation(first))
        self.episode = episode
        if first.done:
            await self.end()
        return shown

    async def rewind(
        self, recording: Recording, turns: int, *, tools: Tools | None, origin: str, again: bool
    ) -> Rewound:
        """Begin an episode in the state of a recorded one after ``turns`` turns. Raises environment errors."""
        reset = recording.reset
        episode = Played(reset.episode_id, self._name, reset.task, reset.seed, origin)
        self._session = await self._connect(again=again)
        try:
            stateless = self._reach.config.protocol in protocols.STATELESS
            found = await rewind(_Plain(self._session), recording, turns, stateless=stateless)
        except BaseException:
            await self.end()
            raise
        episode.begin(recording.prompt, tools, found.answers[0])
        for taken, answer in zip(recording.turns, found.answers[1:], strict=False):
            episode.answered(taken.said, answer, taken.parse_error)
        episode.replayed = found.turns
        self.episode = episode
        if found.over:
            await self.end()
        return found

    async def _connect(self, *, again: bool) -> Session:
        """A session. With ``again`` a full environment is asked twice: it may not have freed the slot that we left
        yet."""
        try:
            return await open_session(self._reach)
        except EnvironmentFull:
            if not again:
                raise
        await asyncio.sleep(FULL_AGAIN_S)
        return await open_session(self._reach)

    async def step(self, command: Step) -> tuple[Message, list[Message], float]:
        """Play one turn of a person. Returns the turn, the answer's messages, and how many seconds it took."""
        episode = self.episode
        if episode is None or self._session is None:
            raise PlayRefused("no_episode", _("No episode is open. Choose a task and start one."))
        if episode.turns - episode.replayed >= MAX_TURNS:
            await self.end()
            raise PlayRefused("too_long", _("An episode of the playground ends after %(n)s turns.") % {"n": MAX_TURNS})
        said = _message_of(episode, command)
        added, seconds = await self.take(episode, Taken(said, []))
        return said, added, seconds

    async def take(self, episode: Played, turn: Taken) -> tuple[list[Message], float]:
        """Play one turn, of a person or a policy. Returns the environment's messages, and how many seconds it took.

        A fault that the environment reports leaves the episode open: it refused this turn. After any other failure
        a late answer could be taken for the next one, so the session ends.
        """
        session = self._session
        if session is None:
            raise PlayRefused("no_episode", _("No episode is open. Choose a task and start one."))
        began = time.monotonic()
        try:
            answer = _clean_observation(await session.step(turn.request))
        except TiltyardError as exc:
            if type(exc) is not EnvironmentFault:  # its subclasses mean that the episode itself is lost
                await self.end()
            raise
        seconds = time.monotonic() - began
        added = episode.answered(turn.said, answer, turn.parse_error)
        if answer.done:
            await self.end()
        elif episode.size > MAX_TRANSCRIPT_BYTES:
            await self.end()
            raise PlayRefused("too_long", _("The conversation grew beyond 8 MB, so the episode was ended."))
        return added, seconds

    async def give_up(self) -> None:
        """Ask for the verdict on what was played, as a run does of a policy whose budget is spent; then end."""
        episode, session = self.episode, self._session
        if session is not None and episode is not None and episode.reward is None:
            with suppress(TiltyardError, TimeoutError):  # then there is none
                async with asyncio.timeout(VERDICT_LIMIT_S):
                    episode.judged(_clean_observation(await session.step(StepRequest(final=True))))
        await self.end()

    async def end(self) -> None:
        """Give the slot back; what was played stays. Never raises."""
        session, self._session = self._session, None
        if session is not None:
            await asyncio.shield(session.close())


class _Plain:
    """A session whose observations are as they are recorded and shown."""

    def __init__(self, inner: Session) -> None:
        self._inner = inner
        self.latencies, self.failures = inner.latencies, inner.failures

    async def reset(self, request: ResetRequest) -> Observation:
        return _clean_observation(await self._inner.reset(request))

    async def step(self, request: StepRequest) -> Observation:
        return _clean_observation(await self._inner.step(request))

    async def close(self) -> None:
        await self._inner.close()


def _message_of(episode: Played, command: Step) -> Message:
    """The turn as it goes into the transcript. Raises ``PlayRefused`` for arguments that no environment could read."""
    try:
        wanted = [(str(clean_json(call.name)), clean_json(call.arguments)) for call in command.tool_calls]
        problem = json_problem([arguments for _name, arguments in wanted])
    except RecursionError:
        problem = "it is nested too deeply"
    if problem is not None:
        raise PlayRefused("bad_arguments", _("The arguments cannot be sent: %(reason)s.") % {"reason": problem})
    calls = episode.calls(wanted)
    return Message(role="assistant", content=clean_json(command.message), tool_calls=calls or None)


def _clean_observation(observation: Observation) -> Observation:
    """The observation without what PostgreSQL and ``JSON.parse`` refuse."""
    cleaned: dict[str, Any] = clean_json(observation.model_dump(mode="json"))
    return Observation.model_validate(cleaned)
