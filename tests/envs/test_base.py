from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from envs.base import EnvironmentRefusal, ServerSettings, SettingsError, ToolEnvironment
from envs.base.bridge import Bridge, EnvironmentFailure, StepAction
from envs.base.frames import clean_error
from envs.base.guard import Connection, LoadMeter
from envs.base.settings import check_exposure
from envs.wire import Message, Observation, StepRequest
from tests.envs.client import run

SETTINGS = ServerSettings(name="test", version="1", call_timeout_s=0.2, send_timeout_s=0.2, idle_s=0.2)


class Plain(ToolEnvironment):
    def reset(self, task: dict[str, Any], seed: int, episode_id: str) -> Observation:
        return Observation(info={"seed": seed})

    def step(self, request: StepRequest) -> Observation:
        return Observation(messages=[Message(role="tool", content=request.message)])


class Failing(Plain):
    def step(self, request: StepRequest) -> Observation:
        raise KeyError("/secret/path")


class Refusing(Plain):
    def step(self, request: StepRequest) -> Observation:
        raise EnvironmentRefusal("This cannot be done.")


class Coroutine(Plain):
    async def step(self, request: StepRequest) -> Observation:  # type: ignore[override]
        await asyncio.sleep(float(request.message))
        return Observation(done=True, reward=0.5)


class Blocking(Plain):
    blocking = True

    def step(self, request: StepRequest) -> Observation:
        time.sleep(float(request.message))
        return Observation(done=True, reward=0.5)


def play(kind: type[ToolEnvironment], *messages: str) -> list[Any]:
    async def episode() -> list[Any]:
        with ThreadPoolExecutor(1) as workers:
            bridge = Bridge(kind, SETTINGS, workers)
            await bridge.reset_async(task={}, seed=1)
            return [await _caught(bridge, message) for message in messages]

    return run(episode())


async def _caught(bridge: Bridge, message: str) -> Any:
    try:
        return await bridge.step_async(StepAction(message=message))
    except (EnvironmentFailure, EnvironmentRefusal) as error:
        return str(error)


def test_a_failure_inside_an_environment_names_no_internals() -> None:
    text = play(Failing, "x")[0]
    assert text.startswith("The environment's step failed (KeyError); the server's log has it as ")
    assert "secret" not in text


def test_a_refusal_reaches_the_client_word_for_word() -> None:
    assert play(Refusing, "x") == ["This cannot be done."]


@pytest.mark.parametrize("kind", [Coroutine, Blocking])
def test_slow_environments_are_cut_and_the_session_is_not_used_again(kind: type[ToolEnvironment]) -> None:
    assert play(kind, "0")[0].reward == 0.5
    late, after = play(kind, "0.5", "0")
    assert "took longer than 0.2 s" in late
    assert "open a new connection" in after


def test_step_after_the_end_is_refused() -> None:
    assert play(Coroutine, "0", "0")[1] == "The episode is over: send reset to start another."


def test_action_accepts_the_wire_and_newer_fields() -> None:
    action = StepAction.model_validate({"message": "m", "tool_calls": [], "parse_error": "p", "newer": 1})
    assert (action.message, action.tool_calls, action.parse_error) == ("m", [], "p")


def test_a_client_that_does_not_read_loses_its_session() -> None:
    async def stuck(_: Any) -> None:
        await asyncio.sleep(3600)

    async def receive() -> Any:
        return {"type": "websocket.receive", "text": '{"type":"state"}'}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.send", "text": "answer"})

    started = time.monotonic()
    run(Connection(SETTINGS, LoadMeter(), receive, stuck).run(app, {"type": "websocket"}))
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.5", "example.com", ""])
def test_other_hosts_need_a_token_or_the_insecure_flag(host: str) -> None:
    with pytest.raises(SettingsError, match="--token-file"):
        check_exposure(host, None, insecure=False)
    check_exposure(host, "x" * 16, insecure=False)
    check_exposure(host, None, insecure=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    check_exposure(host, None, insecure=False)


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"delay_ms": -1}, {"idle_s": 0}, {"token": "short"}, {"token": ""}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        ServerSettings(name="x", version="1", **wrong)


def test_vanished_clients_are_found_within_a_minute_by_default() -> None:
    settings = ServerSettings(name="x", version="1")
    assert settings.ping_interval_s + settings.ping_timeout_s <= 60


@pytest.mark.parametrize("text", ["{", '{"type":"error"}', '{"type":"error","data":[]}', '{"type":"error","data":{}}'])
def test_any_outgoing_error_is_cleaned(text: str) -> None:
    code, cleaned = clean_error(text)
    assert code and '"type": "error"' in cleaned


def test_a_server_carries_neither_openenvs_page_nor_its_clients() -> None:
    """They are most of what importing OpenEnv takes, in time and in memory; nothing here uses them."""
    code = (
        "import sys, envs.base.server\n"
        "assert not {'gradio', 'pandas', 'fastmcp', 'mcp', 'openai'} & sys.modules.keys()\n"
        "import fastmcp; print(fastmcp.Client.__module__)"  # later imports get the real ones
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "fastmcp.client.client"), done.stderr
