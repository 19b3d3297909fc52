"""AgentGym's HTTP routes: ``/create``, ``/reset`` by the task's number, ``/step`` with a text, ``/close``.

The environments of AgentGym differ in names, not in shape; options hold the names:

- the environment's number is ``env_idx`` or ``id`` (``id_field``), and ``/create`` answers it bare or in a mapping;
- the task's number is ``session_id``, ``data_idx``, ``game`` or ``id`` (``reset_field``);
- an answer's text is ``observation`` or ``state``, or the first item of a list, or is asked for at ``/observation``.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, Literal

from envs.wire import Message, Observation, ResetRequest, StepRequest
from training.config import EnvironmentConfig, Group, option
from training.errors import (
    DataError,
    EnvironmentFault,
    EnvironmentFull,
    EnvironmentProtocolError,
    EnvironmentTimeout,
)
from training.rollout.client import Answer, HttpLink, http_failure
from training.rollout.protocols.base import ServerFacts, first_text, options_of
from training.rollout.session import BaseSession, Session, SessionLost, decode, require_flag
from training.words import _

logger = logging.getLogger(__name__)
BUSY_PAUSE_S, BUSY_TRIES = 0.1, 5
TEXT_FIELDS = ("observation", "state")
_FIELD = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
_PLACES = ("session_id", "extra_info.interaction_kwargs.session_id", "data_idx", "item_id", "extra_info.item_id")
_LAST_NUMBER = re.compile(r"(\d{1,12})$", re.ASCII)
_ACTION = re.compile(r"action\s*:", re.IGNORECASE)


_NAMED = re.compile(r"This is environment (\w[\w -]{0,79})\.?")


class Options(Group):
    """Options of the protocol ``agentgym``."""

    identity: str = option(
        "",
        title=_("Greeting"),
        help=_(
            "What `GET /` must answer, such as “This is environment BabyAI.”; another environment on the same "
            "port is refused. Empty accepts any answer."
        ),
        max_length=200,
    )
    id_field: str = option(
        "env_idx",
        title=_("Environment number"),
        help=_("The name of the environment's number in requests: `env_idx` for WebShop, `id` for most others."),
        pattern=_FIELD,
    )
    reset_field: str = option(
        "session_id",
        title=_("Task number"),
        help=_("The name of the task's number in `/reset`: `session_id` for WebShop, `data_idx` or `game` for others."),
        pattern=_FIELD,
    )
    task_field: str = option(
        "",
        title=_("Field of the row"),
        help=_(
            "Field of the row with the task's number, as a dotted path. Empty looks for session_id, data_idx "
            "and item_id, also below extra_info; a text such as `webshop_5238` gives its number."
        ),
        max_length=200,
    )
    create_body: dict[str, Any] = option(
        dict, title=_("Body of create"), help=_("Body of `/create`; empty sends none.")
    )
    reset_body: dict[str, Any] = option(
        dict, title=_("More fields for reset"), help=_("Other fields that `/reset` takes, besides the two numbers.")
    )
    reward: Literal["last", "sum"] = option(
        "last",
        title=_("Episode reward"),
        help=_("How rewards of single steps become the episode's reward."),
        choices={"last": _("the last one the server gave"), "sum": _("the sum of all of them")},
    )


class AgentGymSession(BaseSession):
    """One environment of the server, from ``/create`` to ``/close``."""

    def __init__(self, config: EnvironmentConfig, url: str, options: Options) -> None:
        super().__init__(config, options.reward)
        self._options = options
        self._link = HttpLink(config, url)
        self._number: int | str | None = None

    async def _begin_episode(self, request: ResetRequest) -> Observation:
        task = task_number(request.task, self._options.task_field)
        if self._number is None:
            self._number = _number(await self._ask_json("POST", "/create", self._options.create_body or None))
        body = {**self._me(), self._options.reset_field: task, **self._options.reset_body}
        self._reward = None
        text = _text(await self._ask_json("POST", "/reset", body))
        if text is None:
            text = _text(await self._ask_json("GET", "/observation", params=self._me()))
        if text is None:
            raise EnvironmentProtocolError("The environment gave no observation after reset.")
        return Observation(messages=[Message(role="user", content=text)])

    async def _play(self, request: StepRequest) -> Observation:
        answer = await self._ask_json("POST", "/step", {**self._me(), "action": action_text(request)})
        text = _text(answer)
        if not isinstance(answer, dict) or text is None:
            raise EnvironmentProtocolError("The answer to /step has no `observation` or `state`.")
        done = require_flag("done", answer.get("done"))
        reward = self._rewarded(answer.get("reward"))
        return Observation(messages=[Message(role="user", content=text)], done=done, reward=reward)

    async def _end(self) -> None:
        try:
            if self._number is not None:
                answer = await self._link.ask("POST", "/close", self._me())
                if answer.status != 200:
                    logger.info("/close answered HTTP %s: the server keeps the environment", answer.status)
        finally:
            await self._link.close()

    def _me(self) -> dict[str, Any]:
        return {self._options.id_field: self._number}

    async def _ask_json(self, method: str, path: str, body: Any = None, params: dict[str, Any] | None = None) -> Any:
        """The JSON of an answer; a busy server is asked again, as AgentGym's clients do."""
        for _attempt in range(BUSY_TRIES):
            answer = await self._link.ask(method, path, body, params=params)
            if answer.status != 503:
                return self._checked_json(answer, path)
            await asyncio.sleep(BUSY_PAUSE_S)
        raise EnvironmentFull(f"The environment is too busy for {path} (HTTP 503).")

    def _checked_json(self, answer: Answer, path: str) -> Any:
        if answer.status in (404, 500) and path == "/step":  # what upstream answers for a number it does not know
            raise SessionLost(f"The environment no longer plays this episode (HTTP {answer.status}).")
        if answer.status == 422 and path == "/reset":
            raise DataError(f"The environment has no such task (HTTP 422): {_excerpt(answer)}")
        if answer.status != 200:
            raise http_failure(answer.status, path)
        value = answer.json()
        if isinstance(value, dict) and value.get("error") and _text(value) is None:
            raise EnvironmentFault(f"The environment reported an error: {str(value['error'])[:300]}")
        return value


def task_number(row: dict[str, Any], field: str = "") -> int | str:
    """The number of the task that a row names. Raises ``DataError``."""
    for place in (field,) if field else _PLACES:
        found: Any = row
        for key in place.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, int) and not isinstance(found, bool):
            return found
        if isinstance(found, str) and found.strip():
            match = _LAST_NUMBER.search(found.strip())
            return int(match[1]) if match else found
    raise DataError(f"The row names no task: {field or ', '.join(_PLACES)} is missing.", hint="Set options.task_field.")


def action_text(request: StepRequest) -> str:
    """The text of a turn that a client of AgentGym sends: the text after the last ``Action:``, or all of it.

    Calls that a dialect has read are written back as ``name[argument]``.
    """
    if request.tool_calls and not request.message.strip():
        call = request.tool_calls[-1]
        return f"{call.name}[{', '.join(str(value) for value in call.arguments.values())}]"
    return _ACTION.split(request.message)[-1].strip()


def _number(created: Any) -> int | str:
    if isinstance(created, dict):
        created = next((created[key] for key in ("id", "env_idx", "env_id") if key in created), None)
    if isinstance(created, bool) or not isinstance(created, int | str):
        raise EnvironmentProtocolError("The answer to /create is no number of an environment.")
    return created


def _text(answer: Any) -> str | None:
    if isinstance(answer, list) and answer:
        answer = answer[0]
    if isinstance(answer, dict):
        return first_text(answer, TEXT_FIELDS)
    return answer if isinstance(answer, str) else None


def _excerpt(answer: Answer) -> str:
    return answer.body[:200].decode("utf-8", "replace")


async def open_session(config: EnvironmentConfig, url: str) -> Session:
    """A session; the server is first spoken to at reset."""
    return AgentGymSession(config, url, options_of(Options, config))


async def ask_facts(config: EnvironmentConfig, url: str) -> ServerFacts:
    """Who answers at ``GET /``; all environments of AgentGym say it there."""
    options = options_of(Options, config)
    link = HttpLink(config, url)
    try:
        async with asyncio.timeout(config.connect_timeout_s):
            answer = await link.ask("GET", "/")
    except TimeoutError as exc:
        raise EnvironmentTimeout(f"No answer within {config.connect_timeout_s:g} s.") from exc
    finally:
        await link.close()
    if answer.status != 200:
        raise http_failure(answer.status, "GET /")
    greeting = _greeting(answer.body)
    if options.identity and greeting != options.identity:
        raise EnvironmentProtocolError(
            f"The server at this address says “{greeting[:100]}”, not “{options.identity}”.", hint="Fix the URL."
        )
    named = _NAMED.fullmatch(greeting)
    if named is None:  # WebShop's says "ok"
        return ServerFacts(config.name or "AgentGym")
    if config.name and config.name != named[1]:
        raise EnvironmentProtocolError(
            f"The server at this address is '{named[1]}', not '{config.name}'.", hint="Fix the URL or the name."
        )
    return ServerFacts(named[1])


def _greeting(body: bytes) -> str:
    """The greeting, which is a text in JSON, or just a text."""
    try:
        value = decode(body)
    except EnvironmentProtocolError:
        value = body.decode("utf-8", "replace")
    return value.strip() if isinstance(value, str) else ""
