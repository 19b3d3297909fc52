"""MCP over streamable HTTP, played against a small server written from the specification."""

from __future__ import annotations

import json
from typing import Any

import pytest

from envs.wire import StepRequest, ToolCall
from tests.training.rollout.foreign import Asked, Raw, Reply, call, http_server, play, say, settings
from training.errors import EnvironmentFault, EnvironmentProtocolError, TiltyardError
from training.rollout.protocols import check_server
from training.rollout.session import SessionLost

TOOLS = [
    {"name": "add", "description": "Add.", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    {"name": "shout", "inputSchema": {"type": "object"}},
]


class Mcp:
    """Two tools on two pages; answers as JSON or as a stream of events with a notification before the result."""

    def __init__(self, *, events: bool = False, version: str = "", session: str | None = "s-1") -> None:
        self.events, self.version, self.session = events, version, session
        self.asked: list[Asked] = []
        self.result: Any = None
        self.error: dict[str, Any] | None = None

    @property
    def methods(self) -> list[str]:
        return [asked.body["method"] if asked.body else asked.method for asked in self.asked]

    def __call__(self, asked: Asked) -> Reply | Raw:
        self.asked.append(asked)
        assert asked.path == "/mcp"
        if asked.method == "DELETE":
            return Reply(405, b"")
        assert asked.headers["accept"] == "application/json, text/event-stream"
        method, params = asked.body["method"], asked.body.get("params")
        if "id" not in asked.body:
            return Reply(202, b"")
        headers: dict[str, str] = {}
        if method == "initialize":
            result: Any = {
                "protocolVersion": self.version or params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "sums", "version": "3"},
            }
            headers = {"Mcp-Session-Id": self.session} if self.session else {}
        elif self.session and asked.headers.get("mcp-session-id") != self.session:
            return Reply(404, b"")
        elif method == "tools/list":
            result = {"tools": TOOLS[1:]} if params else {"tools": TOOLS[:1], "nextCursor": "p2"}
        elif self.error is not None:
            return Reply(200, {"jsonrpc": "2.0", "id": asked.body["id"], "error": self.error})
        else:
            result = self.result or self.call(params)
        return self.reply({"jsonrpc": "2.0", "id": asked.body["id"], "result": result}, headers)

    def call(self, params: dict[str, Any]) -> dict[str, Any]:
        text = str(params["arguments"].get("a", 0) + 1) if params["name"] == "add" else params["name"].upper()
        return {"content": [{"type": "text", "text": text}, {"type": "image", "data": "…"}], "isError": False}

    def reply(self, message: dict[str, Any], headers: dict[str, str]) -> Reply:
        if not self.events:
            return Reply(200, message, headers)
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "hi"}}
        text = f": ping\r\n\r\nevent: message\r\ndata: {json.dumps(note)}\r\n\r\nid: 4\ndata: {json.dumps(message)}\n\n"
        return Reply(200, text.encode(), {**headers, "Content-Type": "text/event-stream; charset=utf-8"})


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("session", ["s-1", None])
def test_an_episode_goes_from_initialize_to_delete(events: bool, session: str | None) -> None:
    server = Mcp(events=events, session=session)
    with http_server(server) as url:
        first, added, last = play(settings(f"{url}/mcp", "mcp"), [call("add", a=4), say("It is 5.")])
    assert first.messages == [] and first.tools is not None
    assert [tool["function"]["name"] for tool in first.tools] == ["add", "shout"]
    assert first.tools[0]["function"]["parameters"] == TOOLS[0]["inputSchema"]
    assert (added.messages[0].content, added.messages[0].tool_call_id, added.done) == ("5\n[image]", "c1", False)
    assert last.done and last.reward is None
    begun = ["initialize", "notifications/initialized", "tools/list", "tools/list", "tools/call"]
    assert server.methods == begun + (["DELETE"] if session else [])
    assert server.asked[0].body["params"]["protocolVersion"] == "2025-06-18"
    assert all(asked.headers["mcp-protocol-version"] == "2025-06-18" for asked in server.asked[1:])


def test_the_older_version_is_spoken_and_any_other_refused() -> None:
    server = Mcp(version="2025-03-26")
    with http_server(server) as url:
        play(settings(f"{url}/mcp", "mcp"), [call("add", a=1)])
    assert server.asked[-2].headers["mcp-protocol-version"] == "2025-03-26"
    with http_server(Mcp(version="1999-01-01")) as url, pytest.raises(EnvironmentProtocolError, match="1999-01-01"):
        play(settings(f"{url}/mcp", "mcp"), [])


def test_only_the_wanted_tools_are_shown() -> None:
    with http_server(Mcp()) as url:
        (first,) = play(settings(f"{url}/mcp", "mcp", options={"tools": ["shout"]}), [])
        assert [tool["function"]["name"] for tool in first.tools or []] == ["shout"]
        with pytest.raises(EnvironmentProtocolError, match="no tool 'gone'"):
            play(settings(f"{url}/mcp", "mcp", options={"tools": ["gone"]}), [])


def test_a_tools_failure_is_reported_to_the_model_and_a_servers_excludes() -> None:
    server = Mcp()
    with http_server(server) as url:
        server.result = {"content": [{"type": "text", "text": "no such city"}], "isError": True}
        answer = play(settings(f"{url}/mcp", "mcp"), [call("add")])[-1]
        assert answer.messages[0].content == "Error: no such city" and not answer.done
        server.result = {"content": [], "structuredContent": {"a": [1]}}
        assert play(settings(f"{url}/mcp", "mcp"), [call("add")])[-1].messages[0].content == '{"a": [1]}'
        server.error = {"code": -32602, "message": "Unknown tool: x"}
        assert play(settings(f"{url}/mcp", "mcp"), [call("x")])[-1].messages[0].content == "Error: Unknown tool: x"
        server.error = {"code": -32603, "message": "boom"}
        with pytest.raises(EnvironmentFault, match="boom"):
            play(settings(f"{url}/mcp", "mcp"), [call("add")])


def test_several_calls_of_a_turn_are_answered_in_order() -> None:
    calls = [ToolCall(id=f"c{n}", name="add", arguments={"a": n}) for n in range(3)]
    with http_server(Mcp()) as url:
        last = play(settings(f"{url}/mcp", "mcp"), [StepRequest(tool_calls=calls, parse_error="one more.")])[-1]
    assert [m.content for m in last.messages] == ["1\n[image]", "2\n[image]", "3\n[image]", "Error: one more."]


def test_a_session_that_the_server_forgot_is_lost() -> None:
    server = Mcp()

    def forget(asked: Asked) -> Reply | Raw:
        if asked.body and asked.body["method"] == "tools/call":
            server.session = "another"
        return server(asked)

    with http_server(forget) as url, pytest.raises(SessionLost):
        play(settings(f"{url}/mcp", "mcp"), [call("add", a=1)])


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, {"jsonrpc": "2.0", "id": 99, "result": {}}),
        Reply(200, {"jsonrpc": "2.0", "id": 1, "result": []}),
        Reply(200, [1]),
        Reply(200, b"{"),
        Reply(200, b"data: {}\n\n", {"Content-Type": "text/event-stream"}),
        Reply(200, b"data: {", {"Content-Type": "text/event-stream"}),
        Reply(200, b"<html>", {"Content-Type": "text/html"}),
        Reply(404, b""),
        Reply(200, {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-06-18"}}, {"Mcp-Session-Id": "é"}),
    ],
)
def test_a_bad_answer_has_its_typed_error(reply: Reply) -> None:
    with http_server(lambda asked: reply) as url, pytest.raises(EnvironmentProtocolError):
        play(settings(f"{url}/mcp", "mcp"), [])


@pytest.mark.parametrize("tools", [None, 3, [3], [{"name": ""}], [{"name": 3}], [{"name": "x" * 300}], [{}] * 600])
def test_a_bad_list_of_tools_is_refused(tools: Any) -> None:
    server = Mcp()

    def answer(asked: Asked) -> Reply | Raw:
        if asked.body and asked.body["method"] == "tools/list":
            return Reply(200, {"jsonrpc": "2.0", "id": asked.body["id"], "result": {"tools": tools}})
        return server(asked)

    with http_server(answer) as url, pytest.raises(EnvironmentProtocolError):
        play(settings(f"{url}/mcp", "mcp"), [])


def test_a_list_of_tools_without_end_is_refused() -> None:
    server = Mcp()

    def answer(asked: Asked) -> Reply | Raw:
        if asked.body and asked.body["method"] == "tools/list":
            page = {"tools": [], "nextCursor": "again"}
            return Reply(200, {"jsonrpc": "2.0", "id": asked.body["id"], "result": page})
        return server(asked)

    with http_server(answer) as url, pytest.raises(EnvironmentProtocolError, match="pages"):
        play(settings(f"{url}/mcp", "mcp"), [])


def test_the_server_says_its_name() -> None:
    server = Mcp()
    with http_server(server) as url:
        assert check_server(settings(f"{url}/mcp", "mcp", name="sums")) == ("sums", "3", None, None, None)
        assert server.methods == ["initialize", "notifications/initialized", "DELETE"]
        with pytest.raises(TiltyardError, match="'sums', not 'other'"):
            check_server(settings(f"{url}/mcp", "mcp", name="other"))
