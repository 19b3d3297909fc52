"""Rollouts by an OpenAI-compatible endpoint: the same loop, with its answers in the place of sampled tokens.

The endpoint is sent the conversation and the tools as they are, and answers with a message. Structured tool calls are
taken as they come, in the shapes that servers are known to write; a text without any is read by the job's dialect.
Turns are counted in the tokens that the endpoint reports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envs.wire import Message, ToolCall
from training.chat_client import Endpoint, Reply, complete
from training.config import EndpointConfig, JobConfig
from training.errors import BudgetSpent
from training.policy.engine import Sample
from training.policy.scripted.words import HEARD, WordTemplate, count
from training.rollout.dialects import Parse, ParsedTurn, choose_dialect
from training.rollout.replicas import Replicas
from training.rollout.scripted import NoEngine
from training.rollout.trajectory import Player, Task, Trajectory

WHO = "The endpoint"
MAX_CALLS = 64


@dataclass
class Budget:
    """What an evaluation has used and may use; tokens count prompts too. Prices are of a million tokens."""

    price_in: float = 0.0
    price_out: float = 0.0
    max_cost: float = 0.0
    max_tokens: int = 0
    cost: float = 0.0
    tokens: int = 0

    @property
    def figures(self) -> dict[str, float]:
        """What was used so far, as metrics: a later attempt goes on from there."""
        return {"endpoint/cost": self.cost, "endpoint/tokens": float(self.tokens)}

    def remember(self, figures: Mapping[str, float]) -> None:
        """Take over what an earlier attempt had used by then."""
        self.cost = max(self.cost, figures.get("endpoint/cost", 0.0))
        self.tokens = max(self.tokens, int(figures.get("endpoint/tokens", 0)))

    def check(self) -> None:
        """Raise ``BudgetSpent`` once a limit is reached."""
        if self.max_cost and self.cost >= self.max_cost:
            raise BudgetSpent(
                f"The evaluation has spent {self.cost:.4g}, and may spend {self.max_cost:.4g}.",
                hint="Raise endpoint.max_cost and resume, or evaluate fewer tasks.",
            )
        if self.max_tokens and self.tokens >= self.max_tokens:
            raise BudgetSpent(
                f"The evaluation has used {self.tokens} tokens, and may use {self.max_tokens}.",
                hint="Raise endpoint.max_tokens and resume, or evaluate fewer tasks.",
            )

    def spend(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Count one request; gives what it cost."""
        cost = (prompt_tokens * self.price_in + completion_tokens * self.price_out) / 1e6
        self.cost += cost
        self.tokens += prompt_tokens + completion_tokens
        return cost


@dataclass(frozen=True)
class Answered(Sample):
    """A turn as an endpoint wrote it; ``ids`` only count its tokens."""

    turn: ParsedTurn


@dataclass(frozen=True)
class EndpointPlayer(Player):
    """Plays by asking."""

    template: WordTemplate
    endpoint: Endpoint
    budget: Budget

    async def _sample(self, task: Task, trajectory: Trajectory) -> Sample:
        room = self.rollout.max_completion_tokens - len(trajectory.completion_ids)
        limit = min(self.rollout.max_turn_tokens, room)
        self.budget.check()
        body: dict[str, Any] = {
            "messages": [written(message) for message in trajectory.messages],
            "temperature": self.rollout.temperature,
            "top_p": self.rollout.top_p,
            "max_tokens": limit,
            "seed": (task.sample_seed + trajectory.turns) % 2**31,
        }
        if trajectory.tools:
            body["tools"] = trajectory.tools
        reply = await complete(self.endpoint, body)
        turn = turn_of(reply, self.parse, f"call_{trajectory.turns}_")
        asked = reply.tokens["prompt_tokens"] or len(trajectory.prompt_ids) + len(trajectory.completion_ids)
        sampled = reply.tokens["completion_tokens"] or count(turn.text) + len(turn.tool_calls)
        trajectory.cost = (trajectory.cost or 0.0) + self.budget.spend(asked, sampled)
        finished = reply.finish != "length"
        size = max(1, min(sampled, limit))
        ids = [HEARD] * (size - 1) + [self.template.eos_id if finished else HEARD]
        return Answered(ids, [0.0] * size, finished, turn)

    def _read(self, sample: Sample, prefix: str) -> ParsedTurn:
        return sample.turn if isinstance(sample, Answered) else super()._read(sample, prefix)


def turn_of(reply: Reply, parse: Parse, prefix: str) -> ParsedTurn:
    """An endpoint's reply as a turn; ``parse`` reads a text without structured calls."""
    text = text_of(reply.message.get("content"))
    calls = calls_of(reply.message)
    if not calls:
        return parse(text, prefix)
    try:
        return ParsedTurn(text, [tool_call(call, f"{prefix}{number}") for number, call in enumerate(calls)])
    except ValueError as exc:
        return ParsedTurn(text, [], str(exc))


def written(message: Message) -> dict[str, Any]:
    """A message as an endpoint reads it."""
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        found["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        found["tool_call_id"] = message.tool_call_id or ""
    return found


def text_of(content: Any) -> str:
    """The text of a message's content: a string, nothing, or a list of parts."""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def calls_of(message: dict[str, Any]) -> list[Any]:
    """The calls of a message in the order written; the older ``function_call`` is one."""
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        return calls[:MAX_CALLS]
    single = message.get("function_call")
    return [{"function": single}] if isinstance(single, dict) else []


def tool_call(found: Any, number: str) -> ToolCall:
    """One call. Raises ``ValueError`` with what is wrong with it, for the policy to read."""
    function = found.get("function", found) if isinstance(found, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not name:
        raise ValueError("A tool call has no name.")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise ValueError(f"The arguments of {name[:64]} are not JSON.") from None
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise ValueError(f"The arguments of {name[:64]} are not an object.")
    given = found.get("id")
    return ToolCall(id=given if isinstance(given, str) and given else number, name=name, arguments=arguments)


def endpoint_of(config: EndpointConfig) -> Endpoint:
    """Where the contestant is and how it is asked."""
    return Endpoint(
        url=config.url,
        model=config.model,
        key_variable=config.key_variable,
        concurrency=config.concurrency,
        timeout_s=config.timeout_s,
        who=WHO,
    )


def endpoint_player(config: JobConfig, budget: Budget) -> EndpointPlayer:
    """The player of a job whose contestant is an endpoint."""
    return EndpointPlayer(
        engine=NoEngine(),
        template=WordTemplate(),
        parse=choose_dialect(config),
        rollout=config.rollout,
        environment=config.environment,
        open_session=Replicas(config.environment).open if config.environment.url else None,
        endpoint=endpoint_of(config.endpoint),
        budget=budget,
    )
