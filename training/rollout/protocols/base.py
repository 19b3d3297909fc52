"""The parts that the protocols share: their options, facts about a server, tools and messages in our wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from envs.wire import Message, StepRequest, ToolCall
from training.config import EnvironmentConfig, Group
from training.data.schema import conversation_key
from training.errors import ConfigError, EnvironmentProtocolError
from training.rollout.session import as_text

MAX_TOOLS = 512
MAX_NAME_CHARS = 200
Options = TypeVar("Options", bound=Group)


class NoOptions(Group):
    """For protocols that need nothing besides the address."""


class ServerFacts(NamedTuple):
    """A server's facts about itself; ``None`` where its protocol has no way to give them."""

    name: str
    version: str | None = None
    slots: int | None = None
    free: int | None = None
    deterministic: bool | None = None


def read_options(model: type[Options], values: dict[str, Any]) -> Options:
    """The options of a protocol. Raises ``ConfigError`` that names the one that is wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as exc:
        first = exc.errors(include_input=False, include_url=False)[0]
        where = ".".join(["environment.options", *(str(part) for part in first["loc"])])
        unknown = first["type"] == "extra_forbidden"
        known = ", ".join(model.model_fields) or "none"
        what = f"this protocol has no such option; it has {known}" if unknown else str(first["msg"])
        raise ConfigError(f"{what}.", option=where) from exc


def options_of(model: type[Options], config: EnvironmentConfig) -> Options:
    """The options that the config gives for its protocol."""
    return read_options(model, config.options)


def function_schema(name: str, description: str, parameters: Any) -> dict[str, Any]:
    """A tool as OpenAI function schemas have it."""
    usable = parameters if isinstance(parameters, dict) and parameters else {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": usable}}


def mcp_tools(listed: Any, schema_field: str, wanted: list[str]) -> list[dict[str, Any]]:
    """MCP's tool list as function schemas; ``wanted`` keeps only those names, empty keeps all."""
    if not isinstance(listed, list) or len(listed) > MAX_TOOLS:
        raise EnvironmentProtocolError(f"The environment's tools are not a list of at most {MAX_TOOLS}.")
    schemas = []
    for tool in listed:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
            raise EnvironmentProtocolError("One of the environment's tools has no usable name.")
        if not wanted or name in wanted:
            schemas.append(function_schema(name, str(tool.get("description") or ""), tool.get(schema_field)))
    if missing := set(wanted) - {schema["function"]["name"] for schema in schemas}:
        raise EnvironmentProtocolError(f"The environment has no tool {min(missing)!r}.", hint="Fix options.tools.")
    return schemas


def mcp_result(result: Any) -> str:
    """The text of an MCP tool result; what is no text is named, not shown. Errors start with ``Error:``."""
    if not isinstance(result, dict) or not isinstance(result.get("content"), list):
        return as_text(result)
    texts = [_part(part) for part in result["content"]]
    structured = next((result[key] for key in ("structuredContent", "structured_content") if result.get(key)), None)
    text = "\n".join(texts) if texts or structured is None else as_text(structured)
    failed = result.get("isError") is True or result.get("is_error") is True
    return f"Error: {text}" if failed else text


def _part(part: Any) -> str:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    return f"[{str(part.get('type', 'content'))[:40] if isinstance(part, dict) else 'content'}]"


async def answer_calls(
    request: StepRequest, call: Callable[[ToolCall], Awaitable[str]], over: Callable[[], bool]
) -> list[Message]:
    """One tool message for each call, in order, until the episode is over; then what could not be read."""
    messages = []
    for asked in request.tool_calls:
        text = await call(asked)
        messages.append(Message(role="tool", content=text, tool_call_id=asked.id, name=asked.name))
        if over():
            return messages
    if request.parse_error:
        messages.append(Message(role="tool", content=f"Error: {request.parse_error}"))
    return messages


def opening(task: dict[str, Any], text: str) -> list[Message]:
    """The environment's first text as the user's message, where the row has no conversation of its own."""
    key = conversation_key(task)
    return [] if not text or (key is not None and task[key]) else [Message(role="user", content=text)]


def first_text(body: dict[str, Any], fields: tuple[str, ...]) -> str | None:
    """The text of the first of the fields that holds one."""
    return next((body[field] for field in fields if isinstance(body.get(field), str)), None)
