"""The messages between a chat process and its parent: JSON lines in on stdin, JSON lines out on stdout.

The first line is ``Open``; the process answers ``Ready`` or ``Failed`` without an ``id`` and ends. Then any number of
``Ask`` and ``Stop``, in any order. Each ``Ask`` is answered by ``Text`` as it is written and ``Said`` for each message
that is whole, and last by exactly one ``Ended`` or ``Failed`` with its ``id``. The end of stdin ends the process.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from envs.wire import Message
from training.config import EndpointConfig, EnvironmentConfig, ModelConfig
from training.config.evaluation import cost_of
from training.errors import ErrorInfo

LINE_BYTES = 16 << 20
"""Longest line in either direction."""


class Line(BaseModel):
    """Base of all lines."""

    model_config = ConfigDict(extra="forbid")


class Open(Line):
    """The speaker to load: a model, or an endpoint that is asked in its place."""

    type: Literal["open"] = "open"
    model: ModelConfig = Field(default_factory=ModelConfig)
    endpoint: EndpointConfig = Field(default_factory=EndpointConfig)


class Place(Line):
    """The environment whose tools may be called, and what may be reached on the way there."""

    config: EnvironmentConfig
    task: dict[str, Any] | None = None
    """What the episode is reset with; ``None``: the conversation's own words."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Of the episode: it stays the same however often an answer is drawn again."""
    allow: list[str] = []
    token: str = ""


class Allowance(Line):
    """What one answer may still use of an endpoint; 0 is no limit. Prices are of a million tokens."""

    tokens: int = 0
    cost: float = 0.0
    price_in: float = 0.0
    price_out: float = 0.0

    def spent(self, read: int, written: int) -> bool:
        """Whether nothing more may be asked."""
        cost = cost_of(read, written, self.price_in, self.price_out)
        return bool((self.tokens and read + written >= self.tokens) or (self.cost and cost >= self.cost))


class Ask(Line):
    """One answer is wanted. ``messages`` is the conversation up to here; temperature 0 takes the likeliest token."""

    type: Literal["ask"] = "ask"
    id: str
    messages: list[Message]
    place: Place | None = None
    temperature: float = Field(default=1.0, ge=0, le=5)
    max_tokens: int = Field(default=512, ge=1, le=32768)
    """Of one model turn."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    max_turns: int = Field(default=8, ge=1, le=64)
    allowance: Allowance = Field(default_factory=Allowance)


class Stop(Line):
    """No more of this answer is wanted; what there is stays. Unknown and ended ones are ignored."""

    type: Literal["stop"] = "stop"
    id: str


class Ready(Line):
    """Loaded. ``context`` is how many tokens the model can hold, 0 where that is unknown."""

    type: Literal["ready"] = "ready"
    context: int = 0
    device: str = ""
    seconds: float = 0.0


class Text(Line):
    """A further piece of the turn that is being written. Whole characters only; the pieces make the turn's text."""

    type: Literal["text"] = "text"
    id: str
    text: str


class Said(Line):
    """A whole message: the model's turn with its calls read, or what the environment answered. ``read``: tokens that
    an endpoint read for it."""

    type: Literal["said"] = "said"
    id: str
    message: Message
    tokens: int = 0
    read: int = 0
    seconds: float = 0.0


Ending = Literal["done", "length", "turns", "budget", "stopped"]


class Ended(Line):
    """The answer is over: by itself, by the limit of tokens, of turns or of its allowance, or because it was stopped.

    ``first_s`` is how long its first token took. ``differs``: the environment answered earlier calls otherwise than
    before. ``reward`` is the environment's verdict, where it has one.
    """

    type: Literal["ended"] = "ended"
    id: str
    why: Ending
    tokens: int = 0
    first_s: float | None = None
    seconds: float = 0.0
    reward: float | None = None
    differs: bool = False


class Failed(Line):
    """The answer, or without an ``id`` the process, failed."""

    type: Literal["failed"] = "failed"
    id: str = ""
    error: ErrorInfo


Heard = Annotated[Open | Ask | Stop, Field(discriminator="type")]
Told = Annotated[Ready | Text | Said | Ended | Failed, Field(discriminator="type")]
heard_adapter: TypeAdapter[Open | Ask | Stop] = TypeAdapter(Heard)
told_adapter: TypeAdapter[Ready | Text | Said | Ended | Failed] = TypeAdapter(Told)
