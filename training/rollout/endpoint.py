"""Rollouts by an OpenAI-compatible endpoint: the same loop, with its answers in the place of sampled tokens.

The endpoint is sent the conversation and the tools as they are, and answers with a message. Structured tool calls are
taken as they come, in the shapes that servers are known to write; a text without any is read by the job's dialect.
To one that knows no tool calls, tools are described in words (``endpoint.tool_format: text``). Turns are counted in the
tokens that the endpoint reports.

An endpoint that is down or too busy is waited for, with growing pauses that all rollouts share; after
``endpoint.patience_s`` the run pauses. Episodes wait meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from envs.wire import Message, ToolCall
from training.chat_client import Endpoint, complete
from training.chat_reply import MAX_CALLS, Reply, well_formed
from training.config import EndpointConfig, JobConfig
from training.config.evaluation import cost_of
from training.dialects import ANYONE, Parse, ParsedTurn, choose_dialect
from training.dialects.base import json_decoder, json_reason
from training.errors import BudgetSpent, EndpointAway, TiltyardError
from training.journal import Event, LogLine
from training.plain import json_problem
from training.policy.engine import Sample
from training.policy.scripted import HEARD, WordTemplate, count
from training.rollout.holding import Wait
from training.rollout.players import NoEngine
from training.rollout.replicas import Replicas
from training.rollout.tokens import Tools
from training.rollout.trajectory import Player, Task, Trajectory
from training.words import _, sentence

WHO = "The endpoint"
JOURNAL_EVERY_S = 2.0
RAISE_HINT = _("Raise the limit, then resume. A limit in the run's own options is raised in a clone of it.")
HELD_HINT = "Start the endpoint again, or ask it less at once, then press Resume."
TOOLS_TOLD = (
    "You can call these tools, given as JSON:\n{tools}\n\n"
    "To call one, write\n<tool_call>\n"
    '{{"name": "<the tool\'s name>", "arguments": {{<its arguments>}}}}\n</tool_call>\n'
    "and stop; several calls are written one after another. What they answer comes in the next message."
)


@dataclass
class Budget:
    """The use of an endpoint by a run, and its limits; tokens count prompts too. Prices are of a million tokens, in
    ``currency``; without any nothing is said of money. ``report`` is called now and then while something is used."""

    price_in: float = 0.0
    price_out: float = 0.0
    max_cost: float = 0.0
    max_tokens: int = 0
    cost: float = 0.0
    tokens: int = 0
    currency: str = ""
    report: Callable[[], None] = field(default=lambda: None, repr=False)
    _journalled_at: float = field(default=-JOURNAL_EVERY_S, repr=False)

    @property
    def priced(self) -> bool:
        """Whether money can be counted."""
        return bool(self.price_in or self.price_out)

    @property
    def figures(self) -> dict[str, float]:
        """The use so far, as metrics: a later attempt continues from there."""
        used = {"endpoint/tokens": float(self.tokens)}
        return used | {"endpoint/cost": self.cost} if self.priced else used

    def remember(self, figures: Mapping[str, float]) -> None:
        """Take over what an earlier attempt had used by then."""
        self.cost = max(self.cost, figures.get("endpoint/cost", 0.0))
        self.tokens = max(self.tokens, int(figures.get("endpoint/tokens", 0)))

    def check(self) -> None:
        """Raise ``BudgetSpent`` once a limit is reached."""
        if self.max_cost and self.cost >= self.max_cost:
            spent, limit = (f"{value:.4g} {self.currency}".strip() for value in (self.cost, self.max_cost))
            text = _("The run has spent {spent} at its endpoint, and may spend {limit}.")
            raise BudgetSpent(sentence(text, spent=spent, limit=limit), hint=RAISE_HINT)
        if self.max_tokens and self.tokens >= self.max_tokens:
            text = _("The run has used {used} tokens of its endpoint, and may use {limit}.")
            raise BudgetSpent(sentence(text, used=self.tokens, limit=self.max_tokens), hint=RAISE_HINT)

    def spend(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Count one request; gives what it cost, ``None`` without prices. Journalled now and then."""
        cost = cost_of(prompt_tokens, completion_tokens, self.price_in, self.price_out)
        self.cost += cost
        self.tokens += prompt_tokens + completion_tokens
        if time.monotonic() - self._journalled_at >= JOURNAL_EVERY_S:
            self._journalled_at = time.monotonic()
            self.report()
        return cost if self.priced else None


class EndpointWait(Wait):
    """The wait for an endpoint, and the number of requests at once: a request that waits for a place is not late."""

    def __init__(self, config: EndpointConfig, write: Callable[[Event], None]) -> None:
        super().__init__(config.patience_s, write)
        self.places = asyncio.Semaphore(config.concurrency)
        self._doubted = False

    def doubt(self, counts: str) -> None:
        """Say once that the endpoint counts tokens in numbers that are none."""
        if not self._doubted:
            self._doubted = True
            text = f"The endpoint's token counts cannot be used ({counts}): its tokens and their cost are estimated."
            self._write(LogLine(level="warning", message=text))

    def _spent(self, error: TiltyardError, waited_s: float) -> TiltyardError:
        last = error.message.rstrip(".")
        return type(error)(
            f"The endpoint was waited for {self._tried(waited_s).removeprefix('for ')}: {last}.", hint=HELD_HINT
        )


@dataclass(frozen=True, kw_only=True)
class Answered(Sample):
    """A turn as an endpoint wrote it; ``ids`` only count its tokens."""

    turn: ParsedTurn
    message: Message


@dataclass(frozen=True)
class EndpointPlayer(Player):
    """Plays by asking."""

    template: WordTemplate
    endpoint: Endpoint
    budget: Budget
    wait: EndpointWait
    tools_in_words: bool = False

    async def _sample(self, task: Task, trajectory: Trajectory) -> Sample:
        room = self.rollout.max_completion_tokens - trajectory.episode_ids
        limit = min(self.rollout.max_turn_tokens, room)
        body: dict[str, Any] = {
            "messages": self._messages(trajectory),
            "temperature": self.rollout.temperature,
            "top_p": self.rollout.top_p,
            "max_tokens": limit,
            "seed": (task.sample_seed + trajectory.turns) % 2**31,
        }
        if trajectory.tools and not self.tools_in_words:
            body["tools"] = trajectory.tools
        reply = await self._wait_for_reply(body)
        turn = turn_of(reply, self.parse, f"call_{trajectory.turns}_", trajectory.tools)
        asked = reply.tokens["prompt_tokens"] or len(trajectory.prompt_ids) + len(trajectory.completion_ids)
        sampled = reply.tokens["completion_tokens"] or written_tokens(turn, reply)
        if reply.doubt:
            self.wait.doubt(reply.doubt)
        cost = self.budget.spend(asked, sampled)
        if cost is not None:
            trajectory.cost = (trajectory.cost or 0.0) + cost
        finished = reply.ended != "length"
        size = max(1, min(sampled, limit))
        ids = [HEARD] * (size - 1) + [self.template.eos_id if finished else HEARD]
        return Answered(ids, [0.0] * size, finished, turn=turn, message=message_of(turn, reply))

    def _messages(self, trajectory: Trajectory) -> list[dict[str, Any]]:
        if not self.tools_in_words:
            return [written(message) for message in trajectory.messages]
        return in_words(trajectory.messages, trajectory.tools)

    async def _wait_for_reply(self, body: dict[str, Any]) -> Reply:
        """One answer, waited for while the endpoint is away. Raises ``EndpointAway`` when the patience is spent."""
        while True:
            async with self.wait.places:
                self.budget.check()
                try:
                    reply = await complete(self.endpoint, body)
                except EndpointAway as error:
                    pause = self.wait.pause(error)
                else:
                    self.wait.answered()
                    return reply
            await asyncio.sleep(pause)

    def _parse_sample(self, sample: Sample, prefix: str, tools: Tools | None) -> ParsedTurn:
        return sample.turn if isinstance(sample, Answered) else super()._parse_sample(sample, prefix, tools)

    def _recorded_message(self, sample: Sample, parsed: ParsedTurn) -> Message:
        return sample.message if isinstance(sample, Answered) else super()._recorded_message(sample, parsed)


def turn_of(reply: Reply, parse: Parse, prefix: str, tools: Tools | None = None) -> ParsedTurn:
    """An endpoint's reply as a turn, judged as a model's own text is; ``parse`` reads one without structured calls."""
    text, found = reply.text, calls_of(reply.message)
    problem = reply.problem or _shape_problem(reply.message)
    if not found and not problem:
        return parse(text, prefix, tools).read_from(text)
    calls: list[ToolCall] = []
    for number, call in enumerate(found):
        try:
            calls.append(tool_call(call, f"{prefix}{number}"))
        except ValueError as exc:
            problem = problem or str(exc)
    sent = [text, *(_as_sent(call) for call in found)]
    return ParsedTurn(text, calls, problem or None).read_from("\n".join(part for part in sent if part))


def message_of(turn: ParsedTurn, reply: Reply) -> Message:
    """A turn as it is recorded: with what the model thought, why it refused, and whether it was cut off."""
    return Message(
        role="assistant",
        content=turn.text,
        reasoning=reply.reasoning or turn.reasoning,
        tool_calls=turn.tool_calls or None,
        refusal=reply.refusal or None,
        finish=reply.ended,
    )


def written_tokens(turn: ParsedTurn, reply: Reply) -> int:
    """About how many tokens a reply has, where its server does not count them."""
    return count(turn.text) + count(reply.reasoning) + count(reply.refusal) + len(turn.tool_calls)


def _shape_problem(message: dict[str, Any]) -> str:
    """What is wrong with the shape of a message, for the model; empty for nothing."""
    content, calls = message.get("content"), message.get("tool_calls")
    if content is not None and not isinstance(content, str | list):
        return "The content of the message is not text."
    if calls is not None and not isinstance(calls, list):
        return "The tool calls are not a list."
    if isinstance(calls, list) and len(calls) > MAX_CALLS:
        return f"More than {MAX_CALLS} tool calls in one turn."
    return ""


def _as_sent(call: Any) -> str:
    try:
        return well_formed(json.dumps(call, ensure_ascii=False))
    except RecursionError:
        return "…"


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


def in_words(messages: list[Message], tools: Tools | None) -> list[dict[str, Any]]:
    """The conversation without structured calls: tools described in the first message, calls and answers as text."""
    found: list[dict[str, Any]] = []
    if tools:
        text = TOOLS_TOLD.format(tools=json.dumps(tools, ensure_ascii=False))
        found.append({"role": "system", "content": text})
    for message in messages:
        calls = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls or []]
        parts = [message.content, *(f"<tool_call>\n{json.dumps(c, ensure_ascii=False)}\n</tool_call>" for c in calls)]
        text = "\n".join(part for part in parts if part)
        role = message.role
        if role == "tool":
            role, text = "user", f"<tool_response>\n{text}\n</tool_response>"
        if found and found[-1]["role"] == role:  # many servers want the roles to alternate
            found[-1]["content"] += f"\n\n{text}"
        else:
            found.append({"role": role, "content": text})
    return found


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
    if not isinstance(function, dict) or not isinstance(name, str) or not name.strip():
        raise ValueError("A tool call has no name.")
    name, shown = name.strip(), well_formed(name.strip()[:64])
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json_decoder.decode(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError) as exc:
            raise ValueError(f"The arguments of {shown} are not JSON: {json_reason(exc)}.") from None
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise ValueError(f"The arguments of {shown} are not an object.")
    if (problem := json_problem([name, arguments])) is not None:
        raise ValueError(f"The call of {shown} cannot be used: {problem}.")
    given = found.get("id")
    return ToolCall(
        id=well_formed(given) if isinstance(given, str) and given else number, name=name, arguments=arguments
    )


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


def budget_of(config: EndpointConfig) -> Budget:
    """The budget of a job for its endpoint."""
    return Budget(
        price_in=config.price_in,
        price_out=config.price_out,
        max_cost=config.max_cost,
        max_tokens=config.max_tokens,
        currency=config.currency,
    )


def endpoint_player(config: JobConfig, budget: Budget, write: Callable[[Event], None]) -> EndpointPlayer:
    """The player of a job whose contestant is an endpoint; waits are journalled by ``write``."""
    return EndpointPlayer(
        engine=NoEngine(),
        template=WordTemplate(),
        parse=choose_dialect(config),
        rollout=config.rollout,
        environment=config.environment,
        open_session=Replicas(config.environment).open if config.environment.url else None,
        endpoint=endpoint_of(config.endpoint),
        budget=budget,
        wait=EndpointWait(config.endpoint, write),
        tools_in_words=config.endpoint.tool_format == "text",
    )


# --- Trying one out -------------------------------------------------------------------------------------------------
# One small question with one tool, asked and read as a run would do it.

QUESTION = "What is 2 + 3? Use the tool `add`."
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
    },
}
TRIED_TOKENS = 256


class Tried(NamedTuple):
    """What an endpoint answered: the tokens that it read and wrote, 0 where it counted none, and its counts that are no
    numbers of tokens. ``called``: it called the tool; ``problem``: why its call cannot be read."""

    read: int
    written: int
    doubt: str
    called: bool
    problem: str


def try_out(
    url: str, model: str, *, key: str = "", timeout_s: float, tools_in_words: bool = False, who: str = WHO
) -> Tried:
    """Ask an endpoint once whether it calls a tool; ``who`` is what sentences call it. Raises ``EndpointFault``."""
    asked = Endpoint(url, model, timeout_s=timeout_s, attempts=1, key=key, who=who)
    question = [Message(role="user", content=QUESTION)]
    body: dict[str, Any] = {"temperature": 0, "max_tokens": TRIED_TOKENS}
    if tools_in_words:
        body["messages"] = in_words(question, [TOOL])
    else:
        body |= {"messages": [written(message) for message in question], "tools": [TOOL]}
    reply = asyncio.run(complete(asked, body))
    called, problem = _tool_called(reply)
    return Tried(reply.tokens["prompt_tokens"], reply.tokens["completion_tokens"], reply.doubt, called, problem)


def _tool_called(reply: Reply) -> tuple[bool, str]:
    """Whether a reply calls the tool, and why that cannot be read."""
    if calls := calls_of(reply.message):
        try:
            return "add" in [tool_call(found, "c").name for found in calls], ""
        except ValueError as exc:
            return False, str(exc)
    turn = ANYONE(reply.text, "c", [TOOL])
    return bool(turn.tool_calls), turn.parse_error or ""
