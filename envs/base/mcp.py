"""``POST /mcp``: the environment's tools for any MCP client, without a session.

A call is played on an environment of its own, opened by seed 0 and closed afterwards, as OpenEnv's servers do it
outside of a session: what one call changes the next does not see. Episodes with rewards are played over ``/ws`` alone;
``reset`` and ``step`` are never tools. At most ``MAX_CALLS`` requests are worked on at once, and none holds a slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from envs.base.bridge import Bridge, EnvironmentFailure, StepAction
from envs.base.environment import EnvironmentRefusal
from envs.base.frames import FrameError, describe, read_object
from envs.base.settings import MAX_FRAME_BYTES, ServerSettings
from envs.wire import ToolCall

PATH = "/mcp"
PROTOCOLS = ("2025-06-18", "2025-03-26", "2024-11-05")
RESERVED = frozenset({"reset", "step", "state", "close"})
MAX_CALLS = 8
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, FAILED, BUSY = -32700, -32600, -32601, -32602, -32603, -32000


class RpcRequest(BaseModel):
    """JSON-RPC 2.0. Without an id it is a notification, which gets no answer."""

    model_config = ConfigDict(extra="ignore")

    jsonrpc: str = Field(pattern=r"^2\.0$")
    method: str = Field(max_length=100)
    params: dict[str, Any] = Field(default_factory=dict)
    id: str | int | None = None


class CallParams(BaseModel):
    """The tool that ``tools/call`` names."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(max_length=200)
    arguments: dict[str, Any] = Field(default_factory=dict)


class RpcError(Exception):
    """A request that has no result; the text is a sentence."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Mcp:
    """The endpoint over the environments of one server; ``make`` opens one."""

    def __init__(self, make: Callable[[], Bridge], settings: ServerSettings) -> None:
        self._make = make
        self._settings = settings
        self._free = MAX_CALLS
        self._methods: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "initialize": self._initialize,
            "ping": self._ping,
            "tools/list": self._list,
            "tools/call": self._call,
        }

    def mount(self, app: FastAPI) -> None:
        """Add the route."""
        app.add_api_route(PATH, self._endpoint, methods=["POST"], response_class=JSONResponse)

    async def _endpoint(self, request: Request) -> Response:
        number: str | int | None = None
        try:
            asked = _request(await _text(request))
            number = asked.id
            if number is None and asked.method.startswith("notifications/"):
                return Response(status_code=202)
            answer = {"result": await self._answer(asked)}
        except RpcError as error:
            answer = {"error": {"code": error.code, "message": str(error)}}
        return JSONResponse({"jsonrpc": "2.0", "id": number, **answer})

    async def _answer(self, asked: RpcRequest) -> dict[str, Any]:
        method = self._methods.get(asked.method)
        if method is None:
            raise RpcError(NO_METHOD, f"Unknown method; this server knows {', '.join(self._methods)}.")
        if not self._free:
            raise RpcError(BUSY, f"{MAX_CALLS} requests are being answered; try again.")
        self._free -= 1
        try:
            return await method(asked.params)
        except (EnvironmentRefusal, EnvironmentFailure) as error:
            raise RpcError(FAILED, str(error)) from None
        finally:
            self._free += 1

    async def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        wanted = params.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in PROTOCOLS else PROTOCOLS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": self._settings.name, "version": self._settings.version},
        }

    async def _ping(self, params: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def _list(self, params: dict[str, Any]) -> dict[str, Any]:
        async with self._opened() as (_bridge, tools):
            return {"tools": list(tools.values())}

    async def _call(self, params: dict[str, Any]) -> dict[str, Any]:
        try:
            asked = CallParams.model_validate(params)
        except ValidationError as error:
            raise RpcError(INVALID_PARAMS, describe("tools/call", error)) from None
        async with self._opened() as (bridge, tools):
            if asked.name not in tools:
                raise RpcError(INVALID_PARAMS, "There is no such tool; ask tools/list.")
            call = ToolCall(id="1", name=asked.name, arguments=asked.arguments)
            seen = await bridge.step_async(StepAction(tool_calls=[call]))
        content = [{"type": "text", "text": message.content} for message in seen.messages]
        return {"content": content, "isError": False}

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[Bridge, dict[str, dict[str, Any]]]]:
        """An environment on its first turn, and its tools by name as MCP has them."""
        bridge = await asyncio.to_thread(self._make)
        try:
            first = await bridge.reset_async(task={}, seed=0)
            functions = [tool["function"] for tool in first.tools or []]
            yield bridge, {item["name"]: _tool(item) for item in functions if item["name"] not in RESERVED}
        finally:
            await asyncio.to_thread(bridge.close)


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's form of a function as MCP has it."""
    schema = function.get("parameters", {"type": "object"})
    return {"name": function["name"], "description": function.get("description", ""), "inputSchema": schema}


async def _text(request: Request) -> str:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FRAME_BYTES:
            raise RpcError(INVALID_REQUEST, f"A request may have {MAX_FRAME_BYTES} bytes.")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise RpcError(PARSE_ERROR, "A request must be UTF-8.") from None


def _request(text: str) -> RpcRequest:
    try:
        return RpcRequest.model_validate(read_object(text))
    except FrameError as error:
        raise RpcError(PARSE_ERROR if error.code == "INVALID_JSON" else INVALID_REQUEST, str(error)) from None
    except ValidationError as error:
        raise RpcError(INVALID_REQUEST, describe("request", error)) from None
