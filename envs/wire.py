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

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)

WIRE_VERSION = 1
MAX_REWARD = 1e6
"""Largest size of a reward or a part of one. Trainers compute in float32, whose neighbours are still 1/16 apart there;
squares of weighted sums stay far from its end."""

MAX_SESSIONS = 1_000_000
MAX_COUNTED = 10**15
"""A larger count of a server's work is read as no count."""

Role = Literal["system", "user", "assistant", "tool"]
Reward = Annotated[float, Field(ge=-MAX_REWARD, le=MAX_REWARD, allow_inf_nan=False)]
Counted = Annotated[int, Field(ge=0, le=MAX_COUNTED)]
Measured = Annotated[float, Field(ge=0, le=MAX_COUNTED, allow_inf_nan=False)]


class WireModel(BaseModel):
    """Base of every wire model: tolerant of fields that a newer peer adds."""

    model_config = ConfigDict(extra="ignore")


class ToolCall(WireModel):
    """One call of one tool, as the model asked for it."""

    id: str
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Message(WireModel):
    """One chat message. ``tool_calls`` only on assistant messages, ``name``/``tool_call_id`` on tool messages.

    ``reasoning`` is what the model thought before an assistant message, apart from its text. Of a turn that an endpoint
    answered also ``refusal``, why it does not answer, and ``finish``, why the turn ended where that was not its own end
    (``length``, ``content_filter``). Those two are for people: no model reads them.
    """

    role: Role
    content: str = ""
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    refusal: str | None = None
    finish: str | None = None


class ResetRequest(WireModel):
    """Start an episode. The same ``task`` and ``seed`` always give the same episode."""

    task: dict[str, Any] = Field(default_factory=dict)
    seed: int = 0
    episode_id: str = ""


class StepRequest(WireModel):
    """One turn of the policy: its text without the calls, and the calls parsed from it.

    ``parse_error`` carries what was wrong with a call that could not be parsed, so that the environment can
    answer the model in its own words; the episode continues. ``final`` says that no turn follows, because the policy's
    budget is spent: the episode ends with the environment's verdict on what was done so far. ``reasoning`` is what the
    policy thought, apart from its message; most environments have no use for it.
    """

    message: str = ""
    reasoning: str | None = None
    tool_calls: list[ToolCall] = Field(default_factory=list)
    parse_error: str | None = None
    final: bool = False

    @classmethod
    def of(cls, message: Message, parse_error: str | None = None) -> StepRequest:
        """The request for a turn of the assistant."""
        calls = message.tool_calls or []
        return cls(message=message.content, reasoning=message.reasoning, tool_calls=calls, parse_error=parse_error)


class Observation(WireModel):
    """The environment's answer to a reset or a step.

    ``messages`` are appended to the conversation (tool results, or the next user turn). ``tools`` are OpenAI
    function schemas; ``None`` means unchanged. ``reward`` and ``reward_parts`` are the environment's own truth
    about the task and ``None``/absent where it has none: missing is never 0. Neither exceeds ``MAX_REWARD`` in size.
    ``info["parse_error"]`` says that the action could not be understood; it counts as a parse error of the policy.
    """

    messages: list[Message] = Field(default_factory=list)
    tools: list[dict[str, Any]] | None = None
    done: bool = False
    reward: Reward | None = None
    reward_parts: dict[str, Reward] = Field(default_factory=dict)
    info: dict[str, Any] = Field(default_factory=dict)


class Load(WireModel):
    """The work of a server: counts since its start, rate and latencies (ms) over the last minute."""

    steps: Counted = 0
    steps_per_s: Measured = 0.0
    p50_ms: Measured | None = Field(default=None, description="None without a step in the last minute.")
    p95_ms: Measured | None = None
    errors: dict[str, Counted] = Field(default_factory=dict, description="Refused or failed frames by code.")


class Baseline(WireModel):
    """The score of a simple policy here: mean reward and the share of episodes that succeed, both 0 to 1."""

    name: str = Field(max_length=80)
    reward: Reward
    success: float = Field(ge=0, le=1)
    episodes: int = Field(ge=1, le=MAX_COUNTED)


class Validation(WireModel):
    """Answer of ``GET /validate``: the environment played its own gold and bad answers just now."""

    ok: bool
    episodes: Counted
    gold_reward: Reward | None = Field(default=None, description="Mean reward of gold answers; 1.0 is right.")
    bad_reward: Reward | None = Field(default=None, description="Highest reward of an empty or adversarial answer.")
    problems: list[str] = Field(default_factory=list, max_length=20)


class Health(WireModel):
    """Answer of ``GET /health``: who this server is, how much room it has and what it has done.

    ``deterministic`` promises that task, seed and actions fix the episode: a lost one may be replayed elsewhere.
    """

    status: Literal["healthy", "degraded"] = "healthy"
    name: str
    version: str
    wire_version: int = WIRE_VERSION
    sessions: int = Field(ge=0, le=MAX_SESSIONS, description="Sessions open now.")
    slots: int = Field(ge=1, le=MAX_SESSIONS, description="Sessions that may be open at once.")
    deterministic: bool = False
    load: Load | None = Field(default=None, description="None where the server does not count.")
    baselines: list[Baseline] = Field(default_factory=list, max_length=16)
    _doubts: list[str] = PrivateAttr(default_factory=list)

    @model_validator(mode="wrap")
    @classmethod
    def _without_doubtful(cls, value: Any, handler: ModelWrapValidatorHandler[Health]) -> Health:
        """Leave out figures that are none: no episode needs them, so they are missing rather than the server."""
        try:
            return handler(value)
        except ValidationError as exc:
            wrong = {str(error["loc"][0]) for error in exc.errors(include_url=False) if error["loc"]}
            if not isinstance(value, dict) or not wrong or not wrong <= {"load", "baselines"}:
                raise
        made = handler({name: found for name, found in value.items() if name not in wrong})
        made._doubts = sorted(wrong)
        return made

    @property
    def doubts(self) -> list[str]:
        """Which of ``load`` and ``baselines`` were left out, because they are no such figures."""
        return self._doubts
