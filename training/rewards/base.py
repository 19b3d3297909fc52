"""The contract of a reward component, episodes for its examples, and which figure says whether a task was done."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from envs.wire import Message, ToolCall

# The contract of a reward component.
#
# A component sees one finished ``Episode`` and returns its raw value, or ``None`` when it has nothing to say about it
# (it could not be computed). A component that raises, or returns something that is not a finite number, makes the whole
# rollout *excluded*: missing is never 0. Each family of components is a package here and one line in
# ``training/rewards/scoring.py``.

EXAMPLE_TOLERANCE = 1e-9
ERROR_PREFIXES = ("Error:", "错误:")
"""A tool message that begins so reports a failure; the error text follows."""


@dataclass(frozen=True)
class Episode:
    """A finished trajectory as rewards see it.

    ``messages`` is the whole conversation in order; the first ``prompt_length`` of them came from the task, the
    others from the policy (``assistant``) and the environment (``tool``, ``user``). A tool message that reports a
    failure starts with ``Error:`` or ``错误:``. ``env_reward`` and ``env_parts`` are the environment's own truth,
    ``None``/empty where it has none.
    ``parse_errors`` counts model turns whose tool call could not be parsed; ``tokens`` counts what the model wrote,
    where they were counted.
    """

    messages: list[Message]
    prompt_length: int
    row: dict[str, Any] = field(default_factory=dict)
    env_reward: float | None = None
    env_parts: dict[str, float] = field(default_factory=dict)
    parse_errors: int = 0
    truncated: bool = False
    tokens: int | None = None

    @property
    def policy_messages(self) -> list[Message]:
        """The model's messages, turn by turn."""
        return [m for m in self.messages[self.prompt_length :] if m.role == "assistant"]

    @property
    def final_answer(self) -> str:
        """Text of the last model turn, or "" when the episode ended with a tool call or nothing."""
        last = self.messages[-1] if len(self.messages) > self.prompt_length else None
        return last.content if last is not None and last.role == "assistant" and not last.tool_calls else ""


class Params(BaseModel):
    """Base of a component's parameters; every field has a title, a help text and limits."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    def problems(self) -> list[str]:
        """What still has to be filled in before a run can score, one sentence each. Defaults are always valid."""
        return []


@dataclass(frozen=True)
class Example:
    """A worked example: an episode and the value it gets under ``params``. ``None``: the component is missing."""

    what: str
    episode: Episode
    expected: float | None
    params: dict[str, Any] = field(default_factory=dict)


class Span(NamedTuple):
    """A piece of the text of message ``message`` that earned or cost something; ``start == end == 0``: all of it."""

    message: int
    start: int
    end: int
    note: str


@dataclass(frozen=True)
class Component:
    """A registered component: what a form shows, the function that scores, and where its formula comes from.

    ``low`` and ``high`` bound the value under default parameters. ``outside`` components ask something besides the
    episode (a judge, a model): they take time, and the web never asks them. ``warning`` says what goes wrong with it.
    """

    name: str
    title: str
    help: str
    score: Callable[[Episode, Any], float | None]
    params: type[Params] = Params
    default_weight: float = 1.0
    low: float = 0.0
    high: float = 1.0
    source: str = ""
    formula: str = ""
    examples: tuple[Example, ...] = ()
    warning: str = ""
    outside: bool = False
    spans: Callable[[Episode, Any], list[Span]] | None = None

    def validate(self) -> list[str]:
        """One sentence for each worked example that does not come out as it should; empty when all do."""
        problems = []
        for example in self.examples:
            value = self.score(example.episode, self.params.model_validate(example.params))
            if not _same(value, example.expected):
                problems.append(f"`{self.name}`, {example.what}: {value} instead of {example.expected}.")
        return problems


def _same(value: float | None, expected: float | None) -> bool:
    if value is None or expected is None:
        return value is expected
    return math.isclose(value, expected, rel_tol=EXAMPLE_TOLERANCE, abs_tol=EXAMPLE_TOLERANCE)


@dataclass(frozen=True)
class Score:
    """Raw component values of one episode, and the reward that they add up to."""

    parts: dict[str, float]
    total: float


# Builders of the small episodes that components give as worked examples.


def user(text: str) -> Message:
    """A message of the user, or of an environment in the user's place."""
    return Message(role="user", content=text)


def says(text: str = "", *calls: str, **arguments: Any) -> Message:
    """A model turn with a text and calls of the named tools, all with the same arguments; ids are 0, 1, …"""
    made = [ToolCall(id=str(number), name=name, arguments=arguments) for number, name in enumerate(calls)]
    return Message(role="assistant", content=text, tool_calls=made or None)


def tool(text: str, call_id: str = "0") -> Message:
    """The answer of a tool."""
    return Message(role="tool", content=text, tool_call_id=call_id)


def played(question: str, *after: Message, **over: Any) -> Episode:
    """An episode whose prompt is one question."""
    return Episode(messages=[user(question), *after], prompt_length=1, **over)


# Which figure says whether a rollout did its task: the environment's own word, else a component that judges the task.
#
# The lab holds all shaping against it, and every page takes a rollout's outcome from it.

ENVIRONMENT = "task_success"
"""The environment's own verdict, among the parts that it reports."""
OUTCOMES = (
    "task_success",
    "bfcl_task_success",
    "webshop_success",
    "toolbench_pass",
    "helloagents_accuracy",
    "math_answer",
    "numeric_match",
    "exact_match",
    "webshop_score",
)
"""Functions that judge the task itself, the first that is there counts."""


class Verdict(NamedTuple):
    """How well a task was done, 0 to 1, and the component that says so; ``by`` is empty for the environment itself."""

    value: float
    by: str = ""


def verdict_of(
    env_parts: Mapping[str, Any], parts: Mapping[str, Any], functions: Mapping[str, str] | None = None
) -> Verdict | None:
    """The verdict on a rollout's outcome; ``None`` where nothing judged the task.

    ``functions`` names the function of each component whose name is another one; a component's own name is its
    function otherwise.
    """
    reported = _number(env_parts.get(ENVIRONMENT))
    if reported is not None:
        return Verdict(reported)
    functions = functions or {}
    for function in OUTCOMES:
        for name, raw in parts.items():
            value = _number(raw) if functions.get(name, name) == function else None
            if value is not None:
                return Verdict(value, name)
    return None


def _number(value: Any) -> float | None:
    known = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if known else None
