from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from envs.base import SettingsError
from envs.toolbench.answers import Answerer
from envs.toolbench.endpoint import Endpoint, EndpointFailure, EndpointSettings, read_key
from envs.toolbench.library import Library
from tests.envs.toolbench.builders import api

SETTINGS = EndpointSettings("http://127.0.0.1:9/v1/", "sim", key="secret-key", timeout_s=0.3)
Handler = Callable[[httpx.Request], Any]


def completion(content: Any) -> httpx.Response:
    return httpx.Response(200, json={"choices": [{"message": {"content": content}}]})


def ask(handler: Handler) -> dict[str, Any]:
    async def asking() -> dict[str, Any]:
        endpoint = Endpoint(SETTINGS, httpx.MockTransport(handler))
        try:
            return await endpoint.ask(api(), {"city": "Oslo"})
        finally:
            await endpoint.close()

    return asyncio.run(asking())


def test_the_request_is_what_openai_servers_read() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return completion('```json\n{"error": "", "response": {"degrees": 3}}\n```')

    assert ask(answer) == {"error": "", "response": {"degrees": 3}}
    (request,) = seen
    assert (request.method, str(request.url)) == ("POST", "http://127.0.0.1:9/v1/chat/completions")
    assert request.headers["authorization"] == "Bearer secret-key"
    body = json.loads(request.content)
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("sim", 0, 1024)
    assert body["messages"][1]["content"].startswith("API doc:\n{'api_name': 'Forecast'")
    assert body["messages"][1]["content"].endswith("Request:\n{'city': 'Oslo'}")


async def _endless() -> AsyncIterator[bytes]:
    while True:
        yield b" " * 65_536


async def _dripping() -> AsyncIterator[bytes]:
    while True:
        yield b" "
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(500),
        httpx.Response(302, headers={"location": "http://127.0.0.1:9/v1/elsewhere"}),
        httpx.Response(200, text="no JSON"),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={"choices": []}),
        httpx.Response(200, content=b"[" * 100_000),
        httpx.Response(200, content=b"\xff"),
        completion(None),
        completion("text"),
        completion('{"error": ""}'),
        completion('{"response": NaN}'),
        completion("[" * 50_000),
        completion("x" * 2_000_000),
    ],
)
def test_unusable_answers_are_failures(answer: httpx.Response) -> None:
    with pytest.raises(EndpointFailure) as failed:
        ask(lambda request: answer)
    assert not failed.value.timed_out


@pytest.mark.parametrize(("content", "timed_out"), [(_endless, False), (_dripping, True)])
def test_endless_answers_end(content: Callable[[], AsyncIterator[bytes]], timed_out: bool) -> None:
    started = time.monotonic()
    with pytest.raises(EndpointFailure) as failed:
        ask(lambda request: httpx.Response(200, content=content()))
    assert failed.value.timed_out is timed_out
    assert time.monotonic() - started < 2


def test_the_time_limit_is_that_of_the_whole_request() -> None:
    async def slow(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(5)
        return httpx.Response(200)

    started = time.monotonic()
    with pytest.raises(EndpointFailure) as failed:
        ask(slow)
    assert failed.value.timed_out and time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("handler", "wanted"),
    [
        (lambda request: completion('{"error": "", "response": "sunny"}'), ("", "sunny", "endpoint", 0)),
        (lambda request: completion('{"error": "no city", "response": ""}'), ("no city", "", "endpoint", 0)),
        (lambda request: httpx.Response(503), ("Failed to generate fake response", "", "error", 12)),
    ],
)
def test_the_endpoint_is_asked_last_and_a_failure_is_an_error(handler: Handler, wanted: tuple[Any, ...]) -> None:
    asked: list[Any] = []

    def counted(request: httpx.Request) -> Any:
        asked.append(request)
        return handler(request)

    async def answer() -> None:
        answerer = Answerer(Library(), Endpoint(SETTINGS, httpx.MockTransport(counted)))
        plain, shaped = api(), api(template_response={"a": "int"})
        simulated = answerer.quick(shaped.name, shaped, {"city": "Oslo"})
        assert simulated is not None and simulated.source == "simulator" and not asked
        refused = answerer.quick(plain.name, plain, {"town": "Oslo"})
        assert refused is not None and refused.status == 2 and not asked
        assert answerer.quick(plain.name, plain, {"city": "Oslo"}) is None
        found = await answerer.wait(plain.name, plain, {"city": "Oslo"})
        assert (found.error, found.body["response"], found.source, found.status) == wanted

    asyncio.run(answer())
    assert len(asked) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"url": "file:///etc/passwd"},
        {"url": "ftp://host/"},
        {"url": "http://"},
        {"url": "http://user:word@host/"},
        {"url": "http://[::1/"},
        {"model": ""},
        {"timeout_s": 0},
        {"timeout_s": 26},
        {"timeout_s": float("nan")},
    ],
)
def test_endpoints_that_cannot_work_are_refused_at_start(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="--simulator-"):
        EndpointSettings(**{"url": "http://127.0.0.1:9/v1", "model": "sim", **options})


def test_the_key_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k1\n")
    assert read_key(tmp_path / "key") == "k1" and read_key(None) is None
    with pytest.raises(SettingsError, match="cannot be read"):
        read_key(tmp_path / "none")
