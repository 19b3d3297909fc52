"""The contract of a reward component.

A component sees one finished ``Episode`` and returns its raw value, or ``None`` when it has nothing to say about it
(it could not be computed). A component that raises, or returns something that is not a finite number, makes the whole
rollout *excluded*: missing is never 0. Components are registered in ``training/rewards/registry.py``, one line each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from envs.wire import Message


@dataclass(frozen=True)
class Episode:
    """A finished trajectory as rewards see it.

    ``messages`` is the whole conversation in order; the first ``prompt_length`` of them came from the task, the
    others from the policy (``assistant``) and the environment (``tool``, ``user``). A tool message that reports a
    failure starts with ``Error:`` or ``错误:``. ``env_reward`` and ``env_parts`` are the environment's own truth,
    ``None``/empty where it has none.
    ``parse_errors`` counts model turns whose tool call could not be parsed.
    """

    messages: list[Message]
    prompt_length: int
    row: dict[str, Any] = field(default_factory=dict)
    env_reward: float | None = None
    env_parts: dict[str, float] = field(default_factory=dict)
    parse_errors: int = 0
    truncated: bool = False

    @property
    def policy_messages(self) -> list[Message]:
        """What the model wrote, turn by turn."""
        return [m for m in self.messages[self.prompt_length :] if m.role == "assistant"]

    @property
    def final_answer(self) -> str:
        """Text of the last model turn, or "" when the episode ended with a tool call or nothing."""
        last = self.messages[-1] if len(self.messages) > self.prompt_length else None
        return last.content if last is not None and last.role == "assistant" and not last.tool_calls else ""


class Params(BaseModel):
    """Base of a component's parameters; every field has a title, a help text and limits."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Component:
    """A registered component: what a form shows, and the function that scores."""

    name: str
    title: str
    help: str
    score: Callable[[Episode, Any], float | None]
    params: type[Params] = Params
    default_weight: float = 1.0
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True)
class Score:
    """Raw component values of one episode and their weighted sum."""

    parts: dict[str, float]
    total: float
