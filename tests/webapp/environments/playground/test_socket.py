"""The playground's socket: who may play, what comes back, how it ends, and that the slot is always given back."""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from websockets.asyncio.server import serve

from tests.webapp.environments.playground.conftest import CALL, TASK, Seat, sessions
from tests.webapp.live.conftest import Wire, in_db
from training.errors import EnvironmentFull
from webapp.asgi import application
from webapp.common.host import free_port
from webapp.environments.models import Environment
from webapp.environments.playground import consumer, play
from webapp.environments.playground.consumer import seats_taken
from webapp.people.teams.models import Membership

pytestmark = pytest.mark.django_db(transaction=True)
Sit = Callable[..., Any]


@pytest.fixture
def environment(make_environment: Any, tools_server: str) -> Environment:
    found: Environment = make_environment(url=tools_server)
    return found


async def _slots(url: str, wanted: int, within_s: float = 5) -> None:
    deadline = time.monotonic() + within_s
    while (found := await asyncio.to_thread(sessions, url)) != wanted:
        assert time.monotonic() < deadline, f"{found} sessions, not {wanted}"
        await asyncio.sleep(0.05)


async def test_an_editor_plays_an_episode_to_its_reward(environment: Environment, bob: Any, sit: Sit) -> None:
    seat = await sit(environment, bob)
    opened = await seat.reset(TASK, seed=3)
    assert opened["type"] == "opened" and opened["messages"] == [{"role": "user", "content": "What is 17 * 23?"}]
    names = {tool["function"]["name"] for tool in opened["state"]["tools"]}
    assert "calculator" in names and opened["state"]["open"] and opened["state"]["reward"] is None
    await _slots(environment.url, 1)
    answer = await seat.step("", CALL)
    assert answer["type"] == "answer" and answer["state"]["turns"] == 1 and answer["seconds"] > 0
    assert answer["said"]["tool_calls"] == [{"id": "call_0_0", "name": CALL[0], "arguments": CALL[1]}]
    assert [(m["role"], m["content"], m["tool_call_id"]) for m in answer["messages"]] == [("tool", "391", "call_0_0")]
    over = await seat.step("17 times 23 is 391.")
    assert over["state"]["done"] and over["state"]["reward"] == 1.0 and not over["state"]["open"]
    assert over["state"]["parts"]["task_success"] == 1.0
    await _slots(environment.url, 0)
    assert (await seat.step("again"))["code"] == "no_episode"


async def test_viewers_strangers_and_visitors_do_not_play(
    environment: Environment, rita: Any, charlie: Any, alice: Any, sit: Sit
) -> None:
    assert await Seat(environment.pk, rita).connect() == (False, 4403)
    assert await Seat(environment.pk, charlie).connect() == (False, 4404)
    assert await Seat(environment.pk, None).connect() == (False, 4401)
    assert await Seat(uuid.uuid4(), alice).connect() == (False, 4404)
    assert await Seat("nonsense", alice).connect() == (False, 4404)
    await sit(environment, alice)


async def test_a_foreign_origin_is_refused(environment: Environment) -> None:
    headers = [(b"origin", b"http://evil.example")]
    connected, code = await Wire(application, f"/ws/environments/{environment.pk}/play/", headers=headers).connect()
    assert not connected and code != 4401


async def test_the_same_task_and_seed_play_the_same(environment: Environment, bob: Any, sit: Sit) -> None:
    seat = await sit(environment, bob)
    first, other, again = [await seat.reset(seed=seed) for seed in (5, 8, 5)]
    assert first["messages"] == again["messages"] != other["messages"]
    await _slots(environment.url, 1)  # a fresh session took the place of the old one


async def test_the_only_slot_is_asked_for_twice_by_who_just_left_it(
    environment: Environment, bob: Any, sit: Sit, monkeypatch: Any
) -> None:
    seat, real, asked = await sit(environment, bob), play.open_session, []

    async def full_at_first(reach: Any) -> Any:
        asked.append(reach.config.url)
        if len(asked) in {2, 4}:
            raise EnvironmentFull("The environment has no free slot.")
        return await real(reach)

    monkeypatch.setattr(play, "open_session", full_at_first)
    assert [(await seat.reset(TASK))["type"] for _number in range(2)] == ["opened", "opened"] and len(asked) == 3
    await seat.ask(type="close")
    assert (await seat.reset(TASK))["code"] == "environment_full"  # another person has it


async def _refused(environment: Environment, user: Any) -> int:
    """The close code of a tab that may look in but not sit down."""
    seat = Seat(environment.pk, user)
    assert await seat.connect() == (True, None)
    code = await seat.closed()
    await seat.disconnect()
    return code


async def test_two_tabs_of_one_environment_are_one_too_many(
    environment: Environment, bob: Any, alice: Any, make_environment: Any, sit: Sit
) -> None:
    await sit(environment, bob)
    assert await _refused(environment, bob) == 4429
    await sit(environment, alice)  # another person may
    for _number in range(3):
        await sit(await in_db(make_environment)(), bob)
    assert await _refused(await in_db(make_environment)(), bob) == 4429


async def test_closing_the_tab_gives_the_slot_back(environment: Environment, bob: Any, sit: Sit) -> None:
    seat = Seat(environment.pk, bob)
    assert (await seat.connect())[0]
    await seat.frame()
    await seat.reset(TASK)
    await _slots(environment.url, 1)
    await seat.disconnect()
    await _slots(environment.url, 0)
    await sit(environment, bob)  # and the seat is free again


class Pretender:
    """An environment that answers whatever it is sent, after a while."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s, self.open, self.port = delay_s, 0, free_port()

    async def _serve(self, socket: Any) -> None:
        self.open += 1
        body = {"messages": [{"role": "user", "content": "hello"}], "tools": [], "info": {}}
        try:
            async for frame in socket:
                if json.loads(frame)["type"] == "close":
                    return
                await asyncio.sleep(self.delay_s)
                data = {"observation": body, "reward": None, "done": False}
                await socket.send(json.dumps({"type": "observation", "data": data}))
        finally:
            self.open -= 1

    async def __aenter__(self) -> Pretender:
        self._server = await serve(self._serve, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def until(self, wanted: int) -> None:
        """Wait until so many sessions are open."""
        async with asyncio.timeout(5):
            while self.open != wanted:  # noqa: ASYNC110 - a test may look now and then
                await asyncio.sleep(0.02)


@pytest.fixture
def pretend(make_environment: Any, settings: Any) -> Callable[[Pretender], Environment]:
    """Register a pretender."""

    def make(server: Pretender) -> Environment:
        settings.OUTBOUND_ALLOW = [*settings.OUTBOUND_ALLOW, f"127.0.0.1:{server.port}"]
        found: Environment = make_environment(url=f"http://127.0.0.1:{server.port}")
        return found

    return make


async def test_closing_while_the_environment_is_slow_does_not_wait_for_it(bob: Any, pretend: Any) -> None:
    async with Pretender(delay_s=3) as server:
        seat = Seat((await in_db(pretend)(server)).pk, bob)
        assert (await seat.connect())[0]
        await seat.frame()
        await seat.send_to(text_data=RESET)
        await server.until(1)
        began = time.monotonic()
        await seat.disconnect()
        assert time.monotonic() - began < 2 and seats_taken() == 0
        await server.until(0)


async def test_a_second_command_waits_its_turn(bob: Any, pretend: Any, sit: Sit) -> None:
    async with Pretender(delay_s=0.3) as server:
        seat = await sit(await in_db(pretend)(server), bob)
        await seat.send_to(text_data=RESET)
        await server.until(1)
        assert (await seat.ask(type="close"))["code"] == "busy"
        assert (await seat.frame())["type"] == "opened"
        assert (await seat.ask(type="close"))["type"] == "ended"
        await server.until(0)


async def test_an_environment_that_hangs_meets_its_time_limit(
    bob: Any, pretend: Any, sit: Sit, monkeypatch: Any
) -> None:
    values = {"name": "tools", "protocol": "openenv", "reset_timeout_s": 0.2}
    async with Pretender(delay_s=1) as server:
        values["url"] = f"http://127.0.0.1:{server.port}"
        monkeypatch.setattr(Environment, "job_values", lambda _self: values)
        seat = await sit(await in_db(pretend)(server), bob)
        problem = await seat.reset(TASK)
        assert problem["code"] == "environment_timeout" and "0.2 s" in problem["detail"]
        assert not problem["state"]["open"]


async def test_an_environment_that_dies_mid_episode_is_reported(bob: Any, pretend: Any, sit: Sit) -> None:
    async with Pretender(delay_s=0) as server:
        seat = await sit(await in_db(pretend)(server), bob)
        assert (await seat.reset(TASK))["type"] == "opened"
    problem = await seat.step("", CALL)
    assert problem["type"] == "problem" and problem["of"] == "step" and problem["code"] == "environment_unreachable"
    assert problem["title"] and problem["hint"] and not problem["state"]["open"] and problem["state"]["turns"] == 0
    gone = await seat.reset(TASK)
    assert gone["code"] == "environment_unreachable" and gone["of"] == "reset"


async def test_an_address_that_is_no_longer_allowed_is_not_connected(
    environment: Environment, bob: Any, sit: Sit, settings: Any
) -> None:
    seat = await sit(environment, bob)
    settings.OUTBOUND_ALLOW = []
    problem = await seat.reset(TASK)
    assert problem["code"] == "environment_unreachable" and "private to the server" in problem["detail"]
    await _slots(environment.url, 0)


async def test_a_task_that_the_environment_refuses_is_a_sentence(environment: Environment, bob: Any, sit: Sit) -> None:
    seat = await sit(environment, bob)
    problem = await seat.reset({"difficulty": "impossible"})
    assert problem["code"] == "environment_fault" and "difficulty" in problem["detail"]
    assert not problem["state"]["open"]
    await _slots(environment.url, 0)
    deep: Any = {}
    for _number in range(60):
        deep = {"a": deep}
    assert (await seat.reset(deep))["code"] == "invalid"
    assert (await seat.reset({"messages": [{"role": "wizard"}]}))["code"] == "invalid"


async def test_sentences_are_in_the_page_s_language(environment: Environment, bob: Any, sit: Sit) -> None:
    seat = await sit(environment, bob, "?language=zh-hans")
    problem = await seat.reset({"difficulty": "impossible"})
    assert problem["title"] == "环境内部出错。"


async def test_an_idle_session_is_ended_and_its_episode_kept(
    environment: Environment, bob: Any, sit: Sit, monkeypatch: Any
) -> None:
    monkeypatch.setattr(consumer, "IDLE_S", 0.2)
    monkeypatch.setattr(consumer, "WATCH_S", 0.05)
    seat = await sit(environment, bob)
    await seat.reset(TASK)
    ended = await seat.frame()
    assert ended["type"] == "ended" and "slot was released" in ended["reason"] and not ended["state"]["open"]
    assert ended["state"]["episode"]
    await _slots(environment.url, 0)


async def test_a_removed_member_is_closed_and_the_slot_given_back(
    environment: Environment, bob: Any, sit: Sit, monkeypatch: Any
) -> None:
    monkeypatch.setattr(consumer, "RECHECK_S", 0.05)
    monkeypatch.setattr(consumer, "WATCH_S", 0.05)
    seat = await sit(environment, bob)
    await seat.reset(TASK)
    await in_db(Membership.objects.filter(user=bob).delete)()
    assert await seat.closed() == 4403
    await seat.disconnect()
    await _slots(environment.url, 0)


async def test_an_episode_has_a_limit_of_turns(environment: Environment, bob: Any, sit: Sit, monkeypatch: Any) -> None:
    monkeypatch.setattr(play, "MAX_TURNS", 1)
    seat = await sit(environment, bob)
    await seat.reset(TASK)
    assert (await seat.step("", CALL))["type"] == "answer"
    refused = await seat.step("", CALL)
    assert refused["code"] == "too_long" and not refused["state"]["open"] and refused["state"]["turns"] == 1
    await _slots(environment.url, 0)


RESET = '{"type":"reset","seed":0,"source":{"kind":"empty"}}'
BAD = [
    "",
    "{",
    "[]",
    "null",
    "1",
    "{}",
    "\x00",
    "\ud800",
    "NaN",
    "[" * 5000,
    '{"type":"reset"}',
    '{"type":"PING"}',
    '{"type":["ping"]}',
    '{"type":"ping","x":1}',
    '{"type":"reset","seed":-1,"source":{"kind":"empty"}}',
    '{"type":"reset","seed":1.5,"source":{"kind":"empty"}}',
    '{"type":"reset","seed":true,"source":{"kind":"empty"}}',
    '{"type":"reset","seed":0,"source":{"kind":"task","task":[]}}',
    '{"type":"reset","seed":0,"source":{"kind":"x"}}',
    '{"type":"reset","seed":0,"source":{"kind":"row","dataset":"../x","row":1}}',
    RESET[:-1] + ',"url":"http://x"}',
    '{"type":"step","message":1,"tool_calls":[]}',
    '{"type":"step","message":"","tool_calls":[{"name":"a"}]}',
    '{"type":"step","message":"","tool_calls":[{"name":"","arguments":{}}]}',
    '{"type":"save_case","name":"a","expected":{"x":[0]},"total":null}',
    '{"type":"save_case","name":"a","expected":{},"total":[0,NaN]}',
    '{"type":"save_row","dataset":null}',
    '{"type":"save_case","name":"a","expected":{},"total":["0","1"]}',
    '{"type":"save_case","expected":[1]}',
    '{"type":"reset","seed":' + "9" * 5000 + ',"source":{"kind":"empty"}}',
    '"' + "x" * play.FRAME_BYTES + '"',
]


@pytest.mark.parametrize("text", BAD)
def test_nonsense_is_no_command(text: str) -> None:
    assert play.command_of(RESET) is not None
    assert play.command_of(text) is None


def test_ten_thousand_random_frames_never_raise() -> None:
    """The parser takes anything a client can send."""
    dice = random.Random(7)
    for _number in range(10_000):
        good = dice.choice([*BAD[:-2], RESET])
        at = dice.randrange(len(good) + 1)
        text = good[:at] + chr(dice.choice([*b'",:[]e{}', dice.randrange(0x110000)])) + good[at + dice.randrange(3) :]
        play.command_of(text)


@pytest.mark.parametrize("frame", [{"text_data": "{"}, {"bytes_data": b"\x00\xff"}, {"text_data": "[" * 60_001}])
async def test_a_bad_frame_closes_the_socket_and_frees_the_slot(
    environment: Environment, bob: Any, sit: Sit, frame: Any, caplog: Any
) -> None:
    seat = await sit(environment, bob)
    await seat.reset(TASK)
    await seat.send_to(**frame)
    assert await seat.closed() == 4400
    await seat.disconnect()
    assert "Traceback" not in caplog.text
    await _slots(environment.url, 0)


async def test_hostile_arguments_reach_the_environment_as_data(environment: Environment, bob: Any, sit: Sit) -> None:
    seat = await sit(environment, bob)
    await seat.reset(TASK)
    deep: Any = 1
    for _number in range(40):
        deep = [deep]
    assert (await seat.step("", ("calculator", {"expression": deep})))["code"] == "bad_arguments"
    odd = await seat.step("\x00\ud800", ("../../etc/passwd", {"expression": "\ud800\x00<script>"}))
    assert odd["type"] == "answer" and odd["messages"][0]["content"].startswith("Error:")
    assert odd["said"]["content"] == "␀�"
