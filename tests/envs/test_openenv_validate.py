"""OpenEnv's own validator, the field's bar for a server, against each of ours; and what ``/mcp`` answers."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from fastmcp import Client
from openenv.cli._validation import validate_running_environment

from envs.bfcl import DESCRIPTION as BFCL
from tests.envs.client import Server, running_server

NAMES = ("tools", "toolbench", "bfcl", "webshop")
CRITERIA = {
    "openapi_version_available",
    "health_endpoint",
    "metadata_endpoint",
    "schema_endpoint",
    "mcp_endpoint",
    "mode_endpoint_consistency",
}
FIRST_TOOL = {"tools": "calculator", "webshop": "search"}


@pytest.fixture(scope="module", params=NAMES)
def named(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Server]]:
    folder = tmp_path_factory.mktemp(request.param)
    with running_server(folder, module=f"envs.{request.param}") as started:
        yield request.param, started


def address(server: Server, path: str = "") -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def rpc(server: Server, body: Any) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(address(server, "/mcp"), data, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer) if answer.status == 200 else answer.status


def ask(server: Server, method: str, **params: Any) -> Any:
    return rpc(server, {"jsonrpc": "2.0", "id": 7, "method": method, "params": params})


def test_openenvs_validator_passes_all_six_checks(named: tuple[str, Server]) -> None:
    name, server = named
    report = validate_running_environment(address(server))
    assert {item["id"] for item in report["criteria"]} == CRITERIA
    assert report["summary"]["failed_criteria"] == [] and report["passed"] is True
    assert report["mode"] == "production"
    described = {item["id"]: item.get("actual") for item in report["criteria"]}["metadata_endpoint"]
    assert described["name"] == name
    if name == "bfcl":
        assert described["description"] == BFCL


def test_a_real_mcp_client_lists_and_calls_the_tools(named: tuple[str, Server]) -> None:
    name, server = named

    async def talk() -> tuple[set[str], str]:
        async with asyncio.timeout(30), Client(address(server, "/mcp")) as client:
            tools = await client.list_tools()
            first = next((tool for tool in tools if tool.name == FIRST_TOOL.get(name)), tools[0])
            field = next(iter(first.inputSchema.get("properties", {})), None)
            result = await client.call_tool(first.name, {field: "6 * 7"} if field else {}, raise_on_error=False)
            return {tool.name for tool in tools}, result.content[0].text

    names, text = asyncio.run(talk())
    assert names and not names & {"reset", "step", "state", "close"}
    if name == "tools":
        assert (names, text) == ({"calculator", "weather_query", "search", "get_current_time"}, "42")
    assert text
    assert server.health()["sessions"] == 0


def test_what_mcp_cannot_answer_is_an_error_of_json_rpc(named: tuple[str, Server]) -> None:
    _name, server = named
    bad: dict[bytes, int] = {
        b"": -32700,
        b"{": -32700,
        b"\xff": -32700,
        b"[" * 100_000: -32700,
        b"5": -32600,
        b"[]": -32600,
        b"{}": -32600,
        b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}': -32600,
        b'{"jsonrpc": "2.0", "id": [], "method": "ping"}': -32600,
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [' + b"[]," * 100_000 + b"1]}": -32700,
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "x": "' + b"a" * 1_100_000 + b'"}': -32600,
    }
    for body, code in bad.items():
        answer = rpc(server, body)
        assert (answer["jsonrpc"], answer["id"], answer["error"]["code"]) == ("2.0", None, code), body[:60]
    assert ask(server, "resources/list")["error"]["code"] == -32601
    for tool in ("reset", "step", "no such tool", "__class__"):
        assert ask(server, "tools/call", name=tool)["error"]["code"] == -32602
    assert ask(server, "tools/call", name=5)["error"]["code"] == -32602
    assert ask(server, "ping") == {"jsonrpc": "2.0", "id": 7, "result": {}}
    assert rpc(server, {"jsonrpc": "2.0", "method": "notifications/initialized"}) == 202


def test_the_token_guards_what_is_new(tmp_path: Any) -> None:
    with running_server(tmp_path, token="only-for-the-tests-0123456789") as server:
        for path in ("/metadata", "/schema", "/openapi.json", "/mcp"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(address(server, path), timeout=5)
            refused.value.close()
            assert refused.value.code == 401
