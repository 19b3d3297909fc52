"""StableToolBench's ``POST /virtual``: the server answers API calls, the episode is played here.

The row's ``api_list`` names the APIs. Their functions are named as ToolBench names them, and each call goes out with
the category, tool and API that the row gives. ``Finish`` ends the episode. The server has no verdict, so the reward
stays missing: rewards for this protocol come from components that read the transcript.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, NamedTuple

from envs.wire import Message, Observation, ResetRequest, StepRequest, ToolCall
from training.config import EnvironmentConfig, Group, option
from training.errors import DataError, EnvironmentProtocolError, EnvironmentTimeout
from training.rollout.client import HttpLink
from training.rollout.protocols.base import MAX_TOOLS, ServerFacts, answer_calls, function_schema, opening, options_of
from training.rollout.session import BaseSession, Session
from training.words import _

PATH = "/virtual"
MAX_NAME, MAX_DESCRIPTION = 64, 256
FINISH = "Finish"
_KEYWORDS = frozenset({"from", "class", "return", "false", "true", "id", "and"})
_TYPES = {"NUMBER": "integer", "STRING": "string", "BOOLEAN": "boolean"}
_NO_CALL = "No function was called. Call one, or call Finish with the final answer."


class Options(Group):
    """Options of the protocol ``virtual``."""

    toolbench_key: str = option(
        "",
        title=_("ToolBench key"),
        help=_("The key that the server expects with each call; most expect none."),
        max_length=200,
    )
    strip: str = option(
        "",
        title=_("Shortening"),
        help=_("How the server shortens long answers, such as `truncate` or `filter`; empty leaves them unchanged."),
        max_length=40,
    )
    observation_chars: int = option(
        1024,
        title=_("Longest answer"),
        help=_("Characters of one answer that the model sees; the rest is cut, as in ToolBench."),
        unit=_("characters"),
        ge=16,
        le=1_000_000,
    )


class Api(NamedTuple):
    """One API of a row, under the name the model calls it by."""

    function: str
    category: str
    tool: str
    api: str
    schema: dict[str, Any]


class VirtualSession(BaseSession):
    """The functions of one row, answered one POST at a time."""

    def __init__(self, config: EnvironmentConfig, url: str, options: Options) -> None:
        super().__init__(config)
        self._options = options
        self._link = HttpLink(config, url)
        self._apis: dict[str, Api] = {}
        self._finished = False

    async def _begin_episode(self, request: ResetRequest) -> Observation:
        self._apis = {api.function: api for api in row_apis(request.task)}
        self._finished = False
        tools = [api.schema for api in self._apis.values()] + [finish_schema()]
        query = request.task.get("query")
        return Observation(messages=opening(request.task, query if isinstance(query, str) else ""), tools=tools)

    async def _play(self, request: StepRequest) -> Observation:
        messages = await answer_calls(request, self._call, lambda: self._finished)
        return Observation(messages=messages or [Message(role="user", content=_NO_CALL)], done=self._finished)

    async def _call(self, call: ToolCall) -> str:
        if call.name == FINISH:
            self._finished = True
            return ""
        api = self._apis.get(call.name)
        if api is None:
            return _shown({"error": f"There is no function {call.name[:MAX_NAME]}.", "response": ""})
        answer = await self._link.ask_json("POST", PATH, self._request(api, json.dumps(call.arguments)))
        text = _shown(_checked(answer))
        limit = self._options.observation_chars
        return text if len(text) <= limit else text[:limit] + "..."

    def _request(self, api: Api, tool_input: str) -> dict[str, str]:
        return {
            "category": api.category,
            "tool_name": api.tool,
            "api_name": api.api,
            "tool_input": tool_input,
            "strip": self._options.strip,
            "toolbench_key": self._options.toolbench_key,
        }

    async def _end(self) -> None:
        await self._link.close()


def standardize(text: str) -> str:
    """A name as ToolBench's folders and functions have it."""
    plain = re.sub(r"[^\u4e00-\u9fa5a-zA-Z0-9_^]", "_", text)
    plain = re.sub(r"_+", "_", plain).strip("_").lower()
    return f"get_{plain}" if plain[:1].isdigit() else plain


def change_name(name: str) -> str:
    """A name that is no word of a programming language."""
    return f"is_{name}" if name in _KEYWORDS else name


def row_apis(row: dict[str, Any]) -> list[Api]:
    """The APIs of a row, in its order. Raises ``DataError``."""
    extra = row.get("extra_info")
    listed = row.get("api_list", extra.get("api_list") if isinstance(extra, dict) else None)
    if not isinstance(listed, list) or not listed or len(listed) > MAX_TOOLS:
        raise DataError(
            "The row has no `api_list`, so there is nothing to call.",
            hint="Use ToolBench's query files: each row lists its APIs.",
        )
    return [_api(entry) for entry in listed]


def _api(entry: Any) -> Api:
    names = [entry.get(key) if isinstance(entry, dict) else None for key in ("category_name", "tool_name", "api_name")]
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise DataError("An API of the row's `api_list` lacks its category_name, tool_name or api_name.")
    category, tool, api = (str(name) for name in names)
    tool, api = standardize(tool), change_name(standardize(api))
    function = f"{api}_for_{tool}"[-MAX_NAME:]
    description = str(entry.get("api_description") or "")[:MAX_DESCRIPTION]
    return Api(function, category, tool, api, function_schema(function, description, _parameters(entry)))


def _parameters(entry: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    names: dict[str, list[str]] = {"required": [], "optional": []}
    for kind, key in (("required", "required_parameters"), ("optional", "optional_parameters")):
        listed = entry.get(key)
        for parameter in listed if isinstance(listed, list) else []:
            if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str):
                raise DataError("A parameter of the row's `api_list` has no name.")
            name = change_name(standardize(parameter["name"]))
            properties[name] = _property(parameter)
            names[kind].append(name)
    return {"type": "object", "properties": properties, **names}


def _property(parameter: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": _TYPES.get(str(parameter.get("type")), "string"),
        "description": str(parameter.get("description") or "")[:MAX_DESCRIPTION],
    }
    default = parameter.get("default")
    return shown if default in (None, "") else {**shown, "example_value": default}


def finish_schema() -> dict[str, Any]:
    """The function that ends an episode."""
    parameters = {
        "type": "object",
        "properties": {
            "return_type": {"type": "string", "enum": ["give_answer", "give_up_and_restart"]},
            "final_answer": {"type": "string", "description": "The answer for the user, with give_answer."},
        },
        "required": ["return_type"],
    }
    return function_schema(FINISH, "End the task: give the final answer, or give up.", parameters)


def _checked(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict) or not isinstance(answer.get("error"), str) or "response" not in answer:
        raise EnvironmentProtocolError("The answer of /virtual has no `error` and `response`.")
    return {"error": answer["error"], "response": answer["response"]}


def _shown(answer: dict[str, Any]) -> str:
    return json.dumps(answer, ensure_ascii=False)


async def open_session(config: EnvironmentConfig, url: str) -> Session:
    """A session; the server is first spoken to at the first call."""
    return VirtualSession(config, url, options_of(Options, config))


async def ask_facts(config: EnvironmentConfig, url: str) -> ServerFacts:
    """Whether the address speaks the protocol: an unreadable input has its documented answer, and calls no API."""
    options = options_of(Options, config)
    probe = {"category": "Probe", "tool_name": "probe", "api_name": "probe", "tool_input": "{", "strip": options.strip}
    link = HttpLink(config, url)
    try:
        async with asyncio.timeout(config.connect_timeout_s):
            answer = await link.ask_json("POST", PATH, {**probe, "toolbench_key": options.toolbench_key})
    except TimeoutError as exc:
        raise EnvironmentTimeout(f"No answer within {config.connect_timeout_s:g} s.") from exc
    finally:
        await link.close()
    _checked(answer)
    return ServerFacts(config.name or "StableToolBench")
