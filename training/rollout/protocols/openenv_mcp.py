"""OpenEnv servers with MCP tools, made with the package's ``MCPEnvironment``.

Such a server takes two actions over ``/ws``: ``{"type": "list_tools"}`` and ``{"type": "call_tool", "tool_name": …,
"arguments": {…}}``. Both go through ``step``, so that rewards and ends arrive as the environment gives them; the
JSON-RPC of the same package (frames of type ``mcp``, ``/mcp``) knows neither and is not used.

The protocol has no action for an answer without a call. Such a turn ends the episode, with the reward so far.
"""

from __future__ import annotations

from typing import Any

from envs.wire import Observation, ResetRequest, StepRequest, ToolCall
from training.config import EnvironmentConfig, option
from training.errors import EnvironmentFault
from training.rollout.protocols.base import answer_calls, first_text, mcp_result, mcp_tools, opening, options_of
from training.rollout.protocols.openenv_foreign import TEXT_FIELDS, OpenEnvOptions, OpenEnvSession, ask_facts
from training.rollout.session import Session
from training.words import _

__all__ = ["Options", "ask_facts", "open_session"]


class Options(OpenEnvOptions):
    """Options of the protocol ``openenv-mcp``."""

    tools: list[str] = option(
        list,
        title=_("Tools"),
        help=_("The tools that the model may call; empty takes all that the server lists."),
        max_length=512,
    )


class McpEnvironmentSession(OpenEnvSession):
    """Reset, list the tools, call them."""

    def __init__(self, config: EnvironmentConfig, url: str, options: Options) -> None:
        super().__init__(config, url, options)
        self._wanted = options.tools

    async def _begin_episode(self, request: ResetRequest) -> Observation:
        first = await self._reset(request)
        over, reward = self._over, self._reward
        listed = await self._ask_observation("step", {"type": "list_tools"})
        metadata = listed.get("metadata")
        if isinstance(metadata, dict) and metadata.get("error"):
            raise EnvironmentFault(f"The environment could not list its tools: {str(metadata['error'])[:300]}")
        self._over, self._reward = over, reward  # listing is no step of the episode
        tools = mcp_tools(listed.get("tools"), "input_schema", self._wanted)
        text = first_text(first, TEXT_FIELDS) or first_text(_mapping(first.get("metadata")), TEXT_FIELDS) or ""
        messages = opening(request.task, text)
        return Observation(messages=messages, tools=tools, done=over, reward=reward)

    async def _play(self, request: StepRequest) -> Observation:
        messages = await answer_calls(request, self._call, lambda: self._over)
        return Observation(messages=messages, done=self._over or not messages, reward=self._reward)

    async def _call(self, call: ToolCall) -> str:
        action = {"type": "call_tool", "tool_name": call.name, "arguments": call.arguments}
        answer = await self._ask_observation("step", action)
        if error := answer.get("error"):
            return f"Error: {_mapping(error).get('message') or error!s}"
        return mcp_result(answer.get("result"))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


async def open_session(config: EnvironmentConfig, url: str) -> Session:
    """Connect; one connection is one session."""
    session = McpEnvironmentSession(config, url, options_of(Options, config))
    await session.open()
    return session
