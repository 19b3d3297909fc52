"""The environment wire: what travels between a rollout and an environment server.

These models are the only code that ``envs/`` and ``training/`` share. A server embeds them in OpenEnv's
websocket protocol (one session per ``/ws`` connection)::

    -> {"type": "reset", "data": ResetRequest}
    <- {"type": "observation", "data": {"observation": Observation without done/reward, "reward": .., "done": ..}}
    -> {"type": "step", "data": StepRequest}
    <- {"type": "observation", ...}          or  {"type": "error", "data": {"message": .., "code": ..}}
    -> {"type": "close"}

Messages use the chat format of OpenAI and Hugging Face templates. Unknown fields from a newer peer are
tolerated; missing required ones are an error of the peer that left them out.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

WIRE_VERSION = 1

Role = Literal["system", "user", "assistant", "tool"]


class WireModel(BaseModel):
    """Base of every wire model: tolerant of fields that a newer peer adds."""

    model_config = ConfigDict(extra="ignore")


class ToolCall(WireModel):
    """One call of one tool, as the model asked for it."""

    id: str
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Message(WireModel):
    """One chat message. ``tool_calls`` only on assistant messages, ``name``/``tool_call_id`` on tool messages."""

    role: Role
    content: str = ""
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class ResetRequest(WireModel):
    """Start an episode. The same ``task`` and ``seed`` always give the same episode."""

    task: dict[str, Any] = Field(default_factory=dict)
    seed: int = 0
    episode_id: str = ""


class StepRequest(WireModel):
    """One turn of the policy: its text without the calls, and the calls parsed from it.

    ``parse_error`` carries what was wrong with a call that could not be parsed, so that the environment can
    answer the model in its own words; the episode goes on.
    """

    message: str = ""
    tool_calls: list[ToolCall] = Field(default_factory=list)
    parse_error: str | None = None


class Observation(WireModel):
    """What the environment answers to a reset or a step.

    ``messages`` are appended to the conversation (tool results, or the next user turn). ``tools`` are OpenAI
    function schemas; ``None`` means unchanged. ``reward`` and ``reward_parts`` are the environment's own truth
    about the task and ``None``/absent where it has none: missing is never 0.
    """

    messages: list[Message] = Field(default_factory=list)
    tools: list[dict[str, Any]] | None = None
    done: bool = False
    reward: float | None = None
    reward_parts: dict[str, float] = Field(default_factory=dict)
    info: dict[str, Any] = Field(default_factory=dict)


class Health(WireModel):
    """Answer of ``GET /health``: who this server is and how much room it has."""

    status: Literal["healthy", "degraded"] = "healthy"
    name: str
    version: str
    wire_version: int = WIRE_VERSION
    sessions: int = Field(ge=0, description="Sessions open now.")
    slots: int = Field(ge=1, description="Sessions that may be open at once.")
