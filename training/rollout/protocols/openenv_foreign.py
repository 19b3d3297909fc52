"""Shared parts for OpenEnv servers with other actions: frames over ``/ws``, ``GET /health`` and ``/metadata``."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from envs.wire import ResetRequest
from training.config import EnvironmentConfig, Group, option
from training.errors import EnvironmentFull, EnvironmentProtocolError, EnvironmentTimeout, TiltyardError
from training.rollout.client import MAX_HEALTH_BYTES, HttpLink, Socket, parse_frame, require_name
from training.rollout.protocols.base import ServerFacts
from training.rollout.session import BaseSession, require_flag
from training.words import _

REFUSAL_S = 0.5
TEXT_FIELDS = (
    "prompt",
    "instruction",
    "observation",
    "text",
    "message",
    "echoed_message",
    "content",
    "response",
    "output",
    "result",
    "state",
)


class OpenEnvOptions(Group):
    """Options of every OpenEnv server that is not our own."""

    reset_fields: list[str] = option(
        list,
        title=_("Fields for reset"),
        help=_("Fields of the row that the server's reset takes by name, besides `seed`, `episode_id` and `task`."),
        max_length=32,
    )
    reward: Literal["last", "sum"] = option(
        "last",
        title=_("Episode reward"),
        help=_("How rewards of single steps become the episode's reward."),
        choices={"last": _("the last one the server gave"), "sum": _("the sum of all of them")},
    )


class OpenEnvSession(BaseSession):
    """One websocket, one episode."""

    def __init__(self, config: EnvironmentConfig, url: str, options: OpenEnvOptions) -> None:
        super().__init__(config, options.reward)
        self._socket = Socket(config, url)
        self._reset_fields = options.reset_fields
        self._over = False

    async def open(self) -> None:
        """Connect."""
        await self._socket.open()

    async def _ask_observation(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """The observation of one frame; its reward and its end are taken note of."""
        answer = parse_frame(await self._socket.exchange(kind, data))
        self._rewarded(answer.get("reward"))
        self._over = require_flag("done", answer.get("done", False))
        return dict(answer["observation"])

    async def _reset(self, request: ResetRequest) -> dict[str, Any]:
        named = {field: request.task[field] for field in self._reset_fields if field in request.task}
        known = {"seed": request.seed, "episode_id": request.episode_id, "task": request.task}
        self._reward = None
        return await self._ask_observation("reset", {**known, **named})

    async def _end(self) -> None:
        await self._socket.close()


async def ask_facts(config: EnvironmentConfig, url: str) -> ServerFacts:
    """Health, and the name from ``/metadata`` where the server has it."""
    link = HttpLink(config, url, MAX_HEALTH_BYTES)
    try:
        async with asyncio.timeout(config.connect_timeout_s):
            health = await link.ask_json("GET", "/health")
            metadata = await link.ask("GET", "/metadata")
            named = metadata.json() if metadata.status == 200 else {}
    except TimeoutError as exc:
        raise EnvironmentTimeout(f"No health answer within {config.connect_timeout_s:g} s.") from exc
    finally:
        await link.close()
    if not isinstance(health, dict) or health.get("status") not in ("healthy", "degraded"):
        raise EnvironmentProtocolError("The health answer is not the one of an OpenEnv server.")
    named = named if isinstance(named, dict) else {}
    name, version = named.get("name"), named.get("version")
    if isinstance(name, str) and name:
        require_name(config, name)
    return ServerFacts(str(name or "OpenEnv")[:200], str(version)[:80] if version else None)


async def slots_shown(config: EnvironmentConfig, url: str) -> int | None:
    """How many sessions the server says it takes when it refuses the first or the second; ``None`` if it takes both."""
    first, second = Socket(config, url), Socket(config, url)
    try:
        for taken, socket in enumerate((first, second)):
            await socket.open()
            try:
                await socket.refusal(REFUSAL_S)
            except EnvironmentFull as exc:
                return exc.slots or max(1, taken)
    except TiltyardError:
        return None
    finally:
        await first.close()
        await second.close()
    return None
