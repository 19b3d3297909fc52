"""The shop as an environment: one episode is one visit, and buying ends it."""

from __future__ import annotations

import random
from typing import Any

from envs.base import EnvironmentRefusal, ToolEnvironment
from envs.webshop.session import MAX_ARGUMENT_LENGTH, Action, Session, Shop, Turn, find_action
from envs.webshop.tasks import TaskRow, opening, read_row
from envs.wire import Message, Observation, StepRequest, ToolCall

# As the published recipe: 25 turns of the assistant.
MAX_TURNS = 25
MAX_CALLS_PER_TURN = 3
MAX_ANSWERED_CALLS = 16
MAX_NAME_LENGTH = 64
MAX_ERROR_LENGTH = 200

NO_ACTION = "Please provide a valid action (search[...] or click[...])."
ARGUMENTS = {"search": "keywords", "click": "value"}


def _tool(name: str, description: str, argument: str, meaning: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string", "description": meaning}},
        "required": [argument],
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    _tool("search", "Search the shop; works from every page.", "keywords", "Words that describe the product."),
    _tool("click", "Click something on the page that is open.", "value", "A button, product number or option value."),
]


class WebshopEnvironment(ToolEnvironment):
    """Plays visits to a ``Shop`` that all sessions share."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._session: Session | None = None
        self._turn = 0
        self._invalid = 0

    def reset(self, task: dict[str, Any], seed: int, episode_id: str) -> Observation:
        """Open the visit that the row names; a row that names none gets one by seed."""
        row = read_row(task)
        session_id = self._session_id(row, seed)
        self._session = Session(self._shop, self._shop.goals[session_id])
        self._turn = self._invalid = 0
        page = self._session.page
        return Observation(
            messages=opening(row, page.observation),
            tools=TOOLS,
            info={"turn": 0, "session_id": session_id, "available_actions": page.available_actions},
        )

    def step(self, request: StepRequest) -> Observation:
        """Play one turn: the calls in order, or the action in the text."""
        session = self._session
        if session is None:
            raise EnvironmentRefusal("No episode is open: send reset first.")
        if request.final:
            return self._truncated({"turn": self._turn, "invalid_actions": self._invalid}, [])
        self._turn += 1
        if request.tool_calls or request.parse_error is not None:
            messages, turn = self._play_calls(session, request)
        else:
            turn = self._play(session, find_action(request.message))
            text = turn.page.observation
            messages = [Message(role="user", content=text if turn.valid else f"{NO_ACTION}\n\n{text}")]
        return self._observe(session, messages, turn)

    def _session_id(self, row: TaskRow, seed: int) -> int:
        count = len(self._shop.goals)
        if row.catalogue is not None and row.catalogue != self._shop.catalogue.name:
            raise EnvironmentRefusal(
                f"The task belongs to the catalogue {row.catalogue[:MAX_NAME_LENGTH]!r}; "
                f"this server has {self._shop.catalogue.name!r}."
            )
        wanted = row.wanted_session
        if wanted is None:
            return random.Random(f"webshop-task:{seed}").randrange(count)  # noqa: S311 - reproducible
        if not 0 <= wanted < count:
            raise EnvironmentRefusal(f"The task cannot be played: session_id must be between 0 and {count - 1}.")
        return wanted

    def _play_calls(self, session: Session, request: StepRequest) -> tuple[list[Message], Turn]:
        messages = []
        turn = Turn(session.page, False)
        for number, call in enumerate(request.tool_calls[:MAX_ANSWERED_CALLS]):
            if number < MAX_CALLS_PER_TURN:
                text, turn = self._call(session, call)
            else:
                text = f"Error: at most {MAX_CALLS_PER_TURN} tool calls a turn are answered"
            call_id, name = call.id[:MAX_NAME_LENGTH], call.name[:MAX_NAME_LENGTH]
            messages.append(Message(role="tool", content=text, tool_call_id=call_id, name=name))
        if request.parse_error is not None:
            self._invalid += 1
            shown = " ".join(request.parse_error.split())[:MAX_ERROR_LENGTH]
            messages.append(Message(role="tool", content=f"Error: the tool call could not be read: {shown}"))
        return messages, turn

    def _call(self, session: Session, call: ToolCall) -> tuple[str, Turn]:
        if session.done:
            return "Error: the visit is over", Turn(session.page, False)
        argument = ARGUMENTS.get(call.name)
        value = call.arguments.get(argument) if argument else None
        if argument is None:
            fault = f"there is no such tool; this shop has {' and '.join(ARGUMENTS)}"
        elif not isinstance(value, str) or not value:
            fault = f"{call.name} needs the text {argument!r}"
        else:
            turn = self._play(session, _action(call.name, value))
            text = turn.page.observation
            return text if turn.valid else f"Error: this cannot be clicked here\n\n{text}", turn
        self._invalid += 1
        return f"Error: {fault}", Turn(session.page, False)

    def _play(self, session: Session, action: Action | None) -> Turn:
        turn = session.play(action)
        self._invalid += not turn.valid
        return turn

    def _observe(self, session: Session, messages: list[Message], turn: Turn) -> Observation:
        """The turn's result; the end carries the reward. A visit without a purchase is worth 0."""
        info: dict[str, Any] = {"turn": self._turn, "invalid_actions": self._invalid}
        reward = session.reward
        if reward is not None:
            self._session = None
            info |= {"asin": session.product.asin if session.product else "", "options": session.options}
            return Observation(messages=messages, done=True, reward=reward.score, reward_parts=reward.parts, info=info)
        if self._turn >= MAX_TURNS:
            return self._truncated(info, messages)
        info |= {"valid": turn.valid, "available_actions": turn.page.available_actions}
        return Observation(messages=messages, info=info)

    def _truncated(self, info: dict[str, Any], messages: list[Message]) -> Observation:
        """The end of a visit in which nothing was bought."""
        self._session = None
        nothing = {"task_success": 0.0, "score": 0.0}
        info["truncated"] = True
        return Observation(messages=messages, done=True, reward=0.0, reward_parts=nothing, info=info)


def _action(name: str, value: str) -> Action:
    return Action("search" if name == "search" else "click", value.lower()[:MAX_ARGUMENT_LENGTH])
