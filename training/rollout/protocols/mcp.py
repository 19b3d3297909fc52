"""MCP servers over streamable HTTP (specification 2025-06-18, and 2025-03-26 before it).

Every message is a POST of JSON-RPC to the one endpoint, answered as JSON or as a stream of events; the session's number
travels in ``Mcp-Session-Id`` and is given up with DELETE. The one client, not a library of MCP: deadlines, sizes and
addresses must hold for every read.

MCP knows neither rewards nor ends: a turn without a call ends the episode, and its reward stays missing.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator
from typing import Any

from envs.wire import Observation, ResetRequest, StepRequest, ToolCall
from training.config import EnvironmentConfig, Group, option
from training.connections import HttpAnswer
from training.errors import EnvironmentFault, EnvironmentProtocolError, EnvironmentTimeout
from training.redaction import without
from training.rollout.client import HttpLink, http_failure, require_name
from training.rollout.protocols.base import ServerFacts, answer_calls, mcp_result, mcp_tools, options_of
from training.rollout.session import BaseSession, Session, SessionLost, decode
from training.words import _

VERSIONS = ("2025-06-18", "2025-03-26")
MAX_PAGES = 20
MAX_SESSION_CHARS = 1024
_MODELS_FAULT = (-32601, -32602)  # unknown tool, wrong arguments


class Options(Group):
    """Options of the protocol ``mcp``."""

    tools: list[str] = option(
        list,
        title=_("Tools"),
        help=_("The tools that the model may call; empty takes all that the server lists."),
        max_length=512,
    )


class RpcError(Exception):
    """The server answered a request with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class McpLink:
    """JSON-RPC with one server. The caller sets the deadlines."""

    def __init__(self, config: EnvironmentConfig, url: str) -> None:
        self._link = HttpLink(config, url)
        self._headers = {"Accept": "application/json, text/event-stream"}
        self._sent = 0

    async def initialize(self) -> dict[str, Any]:
        """Agree on a version and begin a session. Returns the server's description of itself."""
        params = {
            "protocolVersion": VERSIONS[0],
            "capabilities": {},
            "clientInfo": {"name": "tiltyard", "version": "1"},
        }
        result = await self.request("initialize", params)
        if result.get("protocolVersion") not in VERSIONS:
            raise EnvironmentProtocolError(
                f"The server speaks MCP {str(result.get('protocolVersion'))[:40]}, not one of {', '.join(VERSIONS)}."
            )
        self._headers["MCP-Protocol-Version"] = result["protocolVersion"]
        async with self._link.stream(
            "POST", "", _message("notifications/initialized"), headers=self._headers
        ) as answer:
            if answer.status not in (200, 202, 204):
                raise http_failure(answer.status, "notifications/initialized")
        info = result.get("serverInfo")
        return info if isinstance(info, dict) else {}

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of one request. Raises ``RpcError`` or environment errors."""
        self._sent += 1
        number = self._sent
        body = {**_message(method), "id": number, "params": params}
        async with self._link.stream("POST", "", body, headers=self._headers) as answer:
            if answer.status == 404 and "Mcp-Session-Id" in self._headers:
                raise SessionLost("The server no longer knows this session (HTTP 404).")
            if answer.status != 200:
                raise http_failure(answer.status, method)
            self._remember(answer)
            async for reply in self._messages(answer):
                if isinstance(reply, dict) and reply.get("id") == number and "method" not in reply:
                    return _result(reply)
        raise EnvironmentProtocolError(f"The answer to {method} ended without its result.")

    async def close(self) -> None:
        """Give the session up and drop the connections. Servers may refuse the first."""
        try:
            if "Mcp-Session-Id" in self._headers:
                await self._link.ask("DELETE", "", headers=self._headers)
        finally:
            await self.drop()

    async def drop(self) -> None:
        """Drop the connections without a word."""
        await self._link.close()

    def _remember(self, answer: HttpAnswer) -> None:
        session = answer.headers.get("mcp-session-id")
        if session is not None:
            if len(session) > MAX_SESSION_CHARS or not (session.isascii() and session.isprintable()):
                raise EnvironmentProtocolError("The server's Mcp-Session-Id is not usable.")
            self._headers["Mcp-Session-Id"] = session

    async def _messages(self, answer: HttpAnswer) -> AsyncIterator[Any]:
        """The messages of an answer, as they arrive."""
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json":
            yield decode(await self._link.whole(answer))
        elif kind == "text/event-stream":
            async for data in _events(self._link.chunks(answer)):
                yield decode(without(data, self._link.secrets))
        else:
            raise EnvironmentProtocolError(f"The server answers {kind[:80] or 'nothing'}, not JSON or events.")


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """The ``data`` of server-sent events; fields other than it are of no use here."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest, data = "", []
    async for chunk in chunks:
        *lines, rest = (rest + decoder.decode(chunk)).replace("\r\n", "\n").split("\n")
        for line in lines:
            if line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            elif not line.rstrip("\r") and data:
                yield "\n".join(data)
                data = []


def _message(method: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method}


def _result(reply: dict[str, Any]) -> dict[str, Any]:
    error = reply.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        raise RpcError(code if isinstance(code, int) else 0, str(error.get("message") or "")[:500])
    result = reply.get("result")
    if not isinstance(result, dict):
        raise EnvironmentProtocolError("The server's answer has neither result nor error.")
    return result


class McpSession(BaseSession):
    """Initialize and list at reset; a turn is its calls."""

    def __init__(self, config: EnvironmentConfig, url: str, options: Options) -> None:
        super().__init__(config)
        self._link = McpLink(config, url)
        self._wanted = options.tools

    async def _begin_episode(self, request: ResetRequest) -> Observation:
        try:
            await self._link.initialize()
            listed = await self._list()
        except RpcError as exc:
            raise EnvironmentFault(f"The server refused to begin ({exc.code}): {exc}") from exc
        return Observation(tools=mcp_tools(listed, "inputSchema", self._wanted))

    async def _list(self) -> list[Any]:
        tools: list[Any] = []
        cursor: str | None = None
        for _page in range(MAX_PAGES):
            result = await self._link.request("tools/list", {"cursor": cursor} if cursor else {})
            page = result.get("tools")
            if not isinstance(page, list):
                raise EnvironmentProtocolError("The answer to tools/list has no list of tools.")
            tools += page
            cursor = result.get("nextCursor")
            if not cursor:
                return tools
        raise EnvironmentProtocolError(f"The list of tools has more than {MAX_PAGES} pages.")

    async def _play(self, request: StepRequest) -> Observation:
        messages = await answer_calls(request, self._call, lambda: False)
        return Observation(messages=messages, done=not messages)

    async def _call(self, call: ToolCall) -> str:
        try:
            return mcp_result(await self._link.request("tools/call", {"name": call.name, "arguments": call.arguments}))
        except RpcError as exc:
            if exc.code not in _MODELS_FAULT:
                raise EnvironmentFault(f"The server failed at {call.name[:80]} ({exc.code}): {exc}") from exc
            return f"Error: {exc}"

    async def _end(self) -> None:
        await self._link.close()


async def open_session(config: EnvironmentConfig, url: str) -> Session:
    """A session; the server is first spoken to at reset."""
    return McpSession(config, url, options_of(Options, config))


async def ask_facts(config: EnvironmentConfig, url: str) -> ServerFacts:
    """The server's own name and version, from ``initialize``."""
    options_of(Options, config)
    link = McpLink(config, url)
    try:
        async with asyncio.timeout(config.connect_timeout_s):
            info = await link.initialize()
            await link.close()
    except TimeoutError as exc:
        raise EnvironmentTimeout(f"No answer within {config.connect_timeout_s:g} s.") from exc
    except RpcError as exc:
        raise EnvironmentFault(f"The server refused to begin ({exc.code}): {exc}") from exc
    finally:
        await link.drop()
    name, version = str(info.get("name") or "MCP")[:200], info.get("version")
    require_name(config, name)
    return ServerFacts(name, str(version)[:80] if version else None)
