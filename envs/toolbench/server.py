"""The environment: one episode is one query, some calls of its APIs, and Finish."""

from __future__ import annotations

import asyncio
import json
import re
import unicodedata
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Literal

from envs.base import EnvironmentRefusal, ToolEnvironment
from envs.toolbench.answers import FINAL_ANSWER, GAVE_UP, INPUT_ERROR, OK, UNKNOWN_FUNCTION, Answer, Answerer
from envs.toolbench.documents import FINISH, GIVE_ANSWER, GIVE_UP, Api
from envs.toolbench.speech import DIALECTS, MAX_CALLS_PER_TURN, MAX_NAME_LENGTH, Action, Dialect, Outcome
from envs.toolbench.speech import GAVE_UP as GAVE_UP_TEXT
from envs.toolbench.tasks import Gold, Speech, Task, TaskSet, read_row, resolve
from envs.wire import Message, Observation, StepRequest, ToolCall

# Rewards of an episode: the raw components of the seed's formula, and the truth where it is known.
#
# The seed's total is ``0.1 format + 0.2 function_call + 0.3 finish``; weights are the trainer's business. A part that
# an episode has no value for is left out, never 0.

CALL_OK, CALL_FAILED = 0.1, -0.5
# The seed's bonus of 0.5, and its halves and thirds for giving up and for any other Finish.
FINISH_VALUES = {"answer": 0.5, "give_up": 0.25, "other": 0.15}
MAX_FINAL_LENGTH = 2_000
# The least form of a turn that has an action; below it there are only parts of one.
WHOLE_FORM = 0.5
# Numbers in an answer that no call returned and the query does not name. A few are working; many are guesses.
MAX_UNSUPPORTED_NUMBERS = 5

Ending = Literal["answer", "give_up", "other"]
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_NUMBER = re.compile(r"(?<![0-9.])[0-9]+(?:\.[0-9]+)?(?![0-9])")


@dataclass
class Episode:
    """The state of one episode. ``obtained`` are (function, value) pairs of calls that answered without error."""

    task: Task
    turn: int = 0
    valid_turns: int = 0
    form: float | None = None
    calls_ok: int = 0
    calls_failed: int = 0
    obtained: set[tuple[str, str]] = field(default_factory=set)
    ending: Ending | None = None
    final_answer: str = ""


def reward_parts(episode: Episode) -> dict[str, float]:
    """Every part by name."""
    called = episode.calls_ok + episode.calls_failed
    parts = {
        "format": episode.form or 0.0,
        "valid_turns": episode.valid_turns / max(episode.turn, 1),
        "function_call": round(CALL_OK * episode.calls_ok + CALL_FAILED * episode.calls_failed, 6),
        "finish": FINISH_VALUES[episode.ending] if episode.ending else 0.0,
    }
    if called:
        parts["call_success"] = episode.calls_ok / called
    if episode.task.gold:
        parts["answer"] = _answer_share(episode)
        parts["calls"] = _share(episode.task.gold, episode.obtained)
        parts["task_success"] = float(parts["answer"] == 1.0)
    return parts


def numbers(text: str) -> set[str]:
    """The numbers of a text, without separators of thousands."""
    return set(_NUMBER.findall(_THOUSANDS.sub("", unicodedata.normalize("NFKC", text))))


def _share(gold: tuple[Gold, ...], obtained: set[tuple[str, str]]) -> float:
    return sum((item.function, item.value) in obtained for item in gold) / len(gold)


def _answer_share(episode: Episode) -> float:
    """The share of the asked values that were obtained by calls and are stated in the final answer."""
    if episode.ending != "answer":
        return 0.0
    stated = numbers(episode.final_answer[:MAX_FINAL_LENGTH])
    known = numbers(episode.task.query) | {value for _, value in episode.obtained}
    known |= {number for value in known for number in numbers(value)}
    if len(stated - known) > MAX_UNSUPPORTED_NUMBERS:
        return 0.0
    asked = [item for item in episode.task.gold if item.asked]
    right = sum(item.value in stated and (item.function, item.value) in episode.obtained for item in asked)
    return right / len(asked)


DEFAULT_MAX_TURNS = 12
DEFAULT_MAX_OBSERVATION = 1024

# What upstream's environment says about Finish; its braces and quotes are like that.
ANSWERED = '{"response":"successfully giving the final answer."}'
RESTARTED = '{"response":"chose to give up and restart"}'
NO_RETURN_TYPE = '{error:"must have "return_type""}'
NO_FINAL_ANSWER = '{error:"must have "final_answer""}'
BAD_RETURN_TYPE = '{error:""return_type" is not a valid choice"}'


@dataclass(frozen=True)
class Rules:
    """How episodes are played. ``max_observation`` is in characters."""

    speech: Speech = "native"
    max_turns: int = DEFAULT_MAX_TURNS
    max_observation: int = DEFAULT_MAX_OBSERVATION


class ToolbenchEnvironment(ToolEnvironment):
    """Plays queries of one task set with one answerer; both are shared by all sessions."""

    def __init__(self, answerer: Answerer, tasks: TaskSet, rules: Rules | None = None) -> None:
        self._answerer = answerer
        self._tasks = tasks
        self._rules = rules or Rules()
        self._episode: Episode | None = None
        self._dialect: Dialect = DIALECTS[self._rules.speech]

    def reset(self, task: dict[str, Any], seed: int, episode_id: str) -> Observation:
        """Open the query that the row names or carries; without one, a query is drawn by seed."""
        self._episode = None
        row = read_row(task)
        chosen = resolve(row, seed, self._tasks, self._answerer.library)
        speech = row.speech or self._rules.speech
        self._dialect = DIALECTS[speech]
        self._episode = Episode(chosen)
        # A row with its own prompt keeps it: the trainer would otherwise show the model both.
        messages = row.conversation or self._dialect.opening(chosen)
        info = {"turn": 0, "query_id": chosen.query_id, "speech": speech, "apis": len(chosen.by_function)}
        return Observation(messages=messages, tools=self._dialect.tools(chosen), info=info)

    async def step(self, request: StepRequest) -> Observation:
        """Play one turn; its calls are answered in order."""
        episode = self._episode
        if episode is None:
            raise EnvironmentRefusal("No episode is open: send reset first.")
        if request.final:
            return self._observe(episode, [], [], final=True)
        episode.turn += 1
        action = self._dialect.read(request)
        if episode.form is None or episode.form < WHOLE_FORM:  # the first action counts, not the first turn
            episode.form = max(action.form, episode.form or 0.0)
        outcomes = [] if action.error is not None else await self._play(episode, action)
        messages = self._dialect.render(request, action, outcomes)
        return self._observe(episode, outcomes, messages)

    async def _play(self, episode: Episode, action: Action) -> list[Outcome]:
        """Answer the calls up to a Finish that counts; those that have to wait do so side by side."""
        episode.valid_turns += 1
        outcomes: list[Outcome] = []
        waiting: list[Awaitable[None]] = []
        for number, call in enumerate(action.calls):
            if episode.ending in ("answer", "give_up"):
                outcomes.append(Outcome(call, _error("The task is over."), INPUT_ERROR))
            elif number >= MAX_CALLS_PER_TURN:
                limit = f"At most {MAX_CALLS_PER_TURN} calls a turn are answered."
                outcomes.append(self._refused(episode, call, limit))
            elif call.name == FINISH:
                outcomes.append(_finish(episode, call))
            else:
                outcomes.append(self._call(episode, call, waiting))
        if waiting:
            await asyncio.gather(*waiting)
        return outcomes

    def _call(self, episode: Episode, call: ToolCall, waiting: list[Awaitable[None]]) -> Outcome:
        """The outcome; where something has to be waited for, what fills it later joins ``waiting``."""
        functions = episode.task.by_function
        api = functions.get(call.name) or functions.get(call.name.lower().replace(" ", "_"))
        if api is None:
            error = f"No such function name: {call.name[:MAX_NAME_LENGTH]}"
            return self._refused(episode, call, error, UNKNOWN_FUNCTION)
        outcome = Outcome(call, "", OK)
        answer = self._answerer.quick(api.name, api, call.arguments)
        if answer is None:
            waiting.append(self._wait(episode, outcome, api))
        else:
            self._fill(episode, outcome, api.name.function, answer)
        return outcome

    async def _wait(self, episode: Episode, outcome: Outcome, api: Api) -> None:
        answer = await self._answerer.wait(api.name, api, outcome.call.arguments)
        self._fill(episode, outcome, api.name.function, answer)

    def _fill(self, episode: Episode, outcome: Outcome, function: str, answer: Answer) -> None:
        outcome.status, outcome.source = answer.status, answer.source
        outcome.content = self._cut(json.dumps(answer.body))
        if answer.error.strip():
            episode.calls_failed += 1
            return
        episode.calls_ok += 1
        response = answer.body.get("response") if isinstance(answer.body, dict) else None
        if episode.task.gold and isinstance(response, dict):
            episode.obtained |= {(function, str(value)) for value in response.values()}

    def _refused(self, episode: Episode, call: ToolCall, error: str, status: int = INPUT_ERROR) -> Outcome:
        episode.calls_failed += 1
        return Outcome(call, _error(error), status)

    def _cut(self, text: str) -> str:
        limit = self._rules.max_observation
        return text if len(text) <= limit else f"{text[:limit]}..."

    def _observe(
        self, episode: Episode, outcomes: list[Outcome], messages: list[Message], *, final: bool = False
    ) -> Observation:
        """The turn's result; the last one carries the rewards. The answers of upstream's queries are unknown."""
        info: dict[str, Any] = {
            "turn": episode.turn,
            "status": outcomes[-1].status if outcomes else INPUT_ERROR,
            "calls": [
                {"function": item.call.name[:MAX_NAME_LENGTH], "source": item.source, "status": item.status}
                for item in outcomes
            ],
        }
        finished = episode.ending in ("answer", "give_up")
        if not finished and not final and episode.turn < self._rules.max_turns:
            return Observation(messages=messages, info=info)
        self._episode = None
        if finished:
            info["finish"] = episode.ending
            # In text the end needs no Observation: nothing is read after it.
            if messages and messages[0].role == "user":
                messages = [Message(role="user", content=GAVE_UP_TEXT)] if episode.ending == "give_up" else []
        else:
            info["truncated"] = True
        parts = reward_parts(episode)
        return Observation(messages=messages, done=True, reward=parts.get("answer"), reward_parts=parts, info=info)


def _finish(episode: Episode, call: ToolCall) -> Outcome:
    """Finish as upstream's environment takes it: what lacks something is an error, and the episode continues."""
    kind = call.arguments.get("return_type")
    final = call.arguments.get("final_answer")
    if kind == GIVE_UP:
        episode.ending = "give_up"
        return Outcome(call, RESTARTED, GAVE_UP, "finish")
    if kind == GIVE_ANSWER and final is not None:
        episode.ending = "answer"
        episode.final_answer = final if isinstance(final, str) else json.dumps(final)
        return Outcome(call, ANSWERED, FINAL_ANSWER, "finish")
    episode.ending = "other"
    if kind is None:
        return Outcome(call, NO_RETURN_TYPE, INPUT_ERROR)
    return Outcome(call, NO_FINAL_ANSWER if kind == GIVE_ANSWER else BAD_RETURN_TYPE, INPUT_ERROR)


def _error(text: str) -> str:
    return json.dumps({"error": text, "response": ""})
