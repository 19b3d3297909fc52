"""From OpenEnv's ``Environment`` to a ``ToolEnvironment``: one bridge for each session."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, NoReturn

from pydantic import ConfigDict, Field, ValidationError

from envs.base.environment import EnvironmentRefusal, ToolEnvironment
from envs.base.frames import describe
from envs.base.openenv import Action as OpenEnvAction
from envs.base.openenv import Environment, State
from envs.base.openenv import Observation as OpenEnvObservation
from envs.base.settings import ServerSettings, log
from envs.wire import Message, Observation, ResetRequest, StepRequest, ToolCall


class StepAction(OpenEnvAction):
    """``wire.StepRequest`` as an OpenEnv action; like the wire it tolerates fields of newer peers."""

    model_config = ConfigDict(extra="ignore")

    message: str = ""
    tool_calls: list[ToolCall] = Field(default_factory=list)
    parse_error: str | None = None
    final: bool = False


class BridgeObservation(OpenEnvObservation):
    """``wire.Observation`` as an OpenEnv observation; ``done`` and ``reward`` are the base class's."""

    messages: list[Message] = Field(default_factory=list)
    tools: list[dict[str, Any]] | None = None
    reward_parts: dict[str, float] = Field(default_factory=dict)
    info: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict, exclude=True)


class EnvironmentFailure(Exception):
    """The environment itself failed; the text is safe to show and the log has the rest."""


class Bridge(Environment[StepAction, BridgeObservation, State]):
    """Plays frames on one ``ToolEnvironment``; every failure becomes a sentence."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    # One shared thread opens and closes sessions: OpenEnv would otherwise start a thread for each of them.
    REQUIRES_SINGLE_THREAD_EXECUTOR = True

    def __init__(
        self, factory: Callable[[], ToolEnvironment], settings: ServerSettings, workers: Executor | None
    ) -> None:
        super().__init__()
        try:
            self._environment = factory()
        except Exception:
            log(logging.ERROR, "environment.start_failed", exc_info=True)
            raise
        self._settings = settings
        self._workers = workers
        self._state = State()
        self._started = False
        self._done = False
        self._broken = False

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> BridgeObservation:
        """Only OpenEnv's HTTP routes call this, and those are not served."""
        raise NotImplementedError("Use the websocket.")

    def step(self, action: StepAction, timeout_s: float | None = None, **_: Any) -> BridgeObservation:
        """Only OpenEnv's HTTP routes call this, and those are not served."""
        raise NotImplementedError("Use the websocket.")

    # ``self`` is positional-only so that a frame with a field "self" stays a frame.
    async def reset_async(self, /, **data: Any) -> BridgeObservation:
        """Start an episode on this session."""
        try:
            request = ResetRequest.model_validate(data)
        except ValidationError as error:
            raise EnvironmentRefusal(describe("reset", error)) from None
        episode_id = request.episode_id or uuid.uuid4().hex
        self._started = self._done = False
        observation = await self._call("reset", self._environment.reset, request.task, request.seed, episode_id)
        self._state = State(episode_id=episode_id, step_count=0)
        self._started = True
        return self._as_openenv(observation)

    async def step_async(self, action: StepAction, timeout_s: float | None = None, **_: Any) -> BridgeObservation:
        """Play one turn."""
        if not self._started:
            raise EnvironmentRefusal("No episode is open: send reset first.")
        if self._done:
            raise EnvironmentRefusal("The episode is over: send reset to start another.")
        if self._settings.delay_ms:
            await asyncio.sleep(self._settings.delay_ms / 1000)
        request = StepRequest.model_construct(
            message=action.message, tool_calls=action.tool_calls, parse_error=action.parse_error, final=action.final
        )
        observation = await self._call("step", self._environment.step, request)
        self._state.step_count += 1
        return self._as_openenv(observation)

    @property
    def state(self) -> State:
        """Episode id and turn count; never anything about the answer."""
        return self._state

    def close(self) -> None:
        try:
            self._environment.close()
        except Exception:
            log(logging.ERROR, "environment.close_failed", exc_info=True)

    async def _call(self, what: str, function: Callable[..., Any], *arguments: Any) -> Observation:
        if self._broken:
            raise EnvironmentRefusal("This session was lost to a time-out: open a new connection.")
        try:
            if self._environment.blocking:
                loop = asyncio.get_running_loop()
                return await self._in_time(loop.run_in_executor(self._workers, function, *arguments))
            result: Observation | Awaitable[Observation] = function(*arguments)
            return result if isinstance(result, Observation) else await self._in_time(result)
        except (EnvironmentRefusal, EnvironmentFailure):
            raise
        except TimeoutError:
            # A thread cannot be stopped and may still change the environment: no other client may use it.
            self._broken = True
            self._fail(what, f"took longer than {self._settings.call_timeout_s:g} s")
        except Exception as error:
            self._fail(what, f"failed ({type(error).__name__})")

    async def _in_time(self, waiting: Awaitable[Observation]) -> Observation:
        async with asyncio.timeout(self._settings.call_timeout_s):
            return await waiting

    def _fail(self, what: str, how: str) -> NoReturn:
        failure_id = uuid.uuid4().hex[:8]
        log(logging.ERROR, f"environment.{what}_failed", exc_info=True, failure=failure_id, how=how)
        raise EnvironmentFailure(f"The environment's {what} {how}; the server's log has it as {failure_id}.") from None

    def _as_openenv(self, observation: Observation) -> BridgeObservation:
        self._done = observation.done
        return BridgeObservation.model_construct(
            messages=observation.messages,
            tools=observation.tools,
            done=observation.done,
            reward=observation.reward,
            reward_parts=observation.reward_parts,
            info=observation.info,
        )
