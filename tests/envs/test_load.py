"""What a server says of itself: its load in ``/health``, its proof in ``/validate``, its baselines."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envs.base import environment, guard
from envs.base.environment import Facts, Prover
from envs.base.guard import MAX_ERROR_CODES, LoadMeter
from envs.wire import Baseline, Validation
from tests.envs.client import Server, run, running_server, session
from tests.envs.conftest import TOKEN
from tests.envs.test_server import http


class Clock:
    """A clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
        self.now = 100.0
        monkeypatch.setattr(module, "time", self)

    def monotonic(self) -> float:
        return self.now


def test_rate_and_latencies_are_those_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, guard)
    meter = LoadMeter()
    assert (meter.read().steps_per_s, meter.read().p50_ms, meter.read().p95_ms) == (0.0, None, None)
    for number in range(100):
        clock.now += 0.1
        meter.step(number / 1000)
    found = meter.read()
    assert (found.steps, found.steps_per_s, found.p50_ms, found.p95_ms) == (100, 10.0, 50.0, 95.0)
    clock.now += 55
    assert meter.read().steps_per_s == pytest.approx(51 / 60, abs=0.02)
    clock.now += 10
    assert (meter.read().steps, meter.read().steps_per_s, meter.read().p95_ms) == (100, 0.0, None)


def test_errors_are_counted_by_code_and_never_without_end() -> None:
    meter = LoadMeter()
    for number in range(1000):
        meter.error(f"code-{number}")
        meter.error("INVALID_JSON" if number else "code-0")
    counted = meter.read().errors
    assert len(counted) == MAX_ERROR_CODES
    assert counted["code-0"] == 2 and counted["INVALID_JSON"] == 999


def test_a_server_counts_what_it_plays(tmp_path: Path) -> None:
    async def play(server: Server) -> None:
        async with session(server) as client:
            await client.reset({})
            for _ in range(5):
                await client.step("", ("nothing", {}))
            await client.send("hello")
            await client.send({"type": "reset", "data": {"task": {"conversation": 5}}})

    with running_server(tmp_path) as server:
        run(play(server))
        found = server.health()["load"]
    assert found["steps"] == 5 and 0 < found["steps_per_s"] <= 5
    assert 0 < found["p50_ms"] <= found["p95_ms"] < 1000
    assert found["errors"] == {"INVALID_JSON": 1, "EXECUTION_ERROR": 1}


def test_a_server_proves_itself_on_request(server: Server) -> None:
    status, body = http(server, "/validate")
    found = Validation.model_validate_json(body)
    assert status == 200
    assert (found.ok, found.gold_reward, found.problems) == (True, 1.0, [])
    assert found.bad_reward is not None and 0 <= found.bad_reward <= 0.1 and found.episodes > 50


def test_validation_needs_the_token(strict_server: Server) -> None:
    assert http(strict_server, "/validate")[0] == 401
    assert http(strict_server, "/validate", Authorization=f"Bearer {TOKEN}")[0] == 200
    assert http(strict_server, "/validate", Origin="http://example.org")[0] == 403


def test_validation_is_repeated_at_most_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, environment)
    played: list[float] = []

    def validate() -> Validation:
        played.append(clock.now)
        return Validation(ok=True, episodes=len(played))

    async def ask() -> None:
        prover = Prover(Facts(validate=validate))
        answers = await asyncio.gather(*(prover.validation() for _ in range(20)))
        assert [answer.episodes for answer in answers] == [1] * 20
        clock.now += 61
        assert (await prover.validation()).episodes == 2

    asyncio.run(ask())
    assert len(played) == 2


def test_a_validation_that_fails_or_is_missing_is_an_answer() -> None:
    def broken() -> Validation:
        raise ZeroDivisionError

    async def ask(known: Facts) -> Validation:
        return await Prover(known).validation()

    failed = asyncio.run(ask(Facts(validate=broken)))
    assert (failed.ok, failed.gold_reward, failed.problems) == (
        False,
        None,
        ["Validation failed with ZeroDivisionError."],
    )
    assert not asyncio.run(ask(Facts())).ok


def test_baselines_appear_when_they_are_computed() -> None:
    wanted = Baseline(name="rules", reward=0.5, success=0.25, episodes=8)

    prover = Prover(Facts(baselines=lambda: [wanted]))
    assert wait_for(lambda: prover.baselines) == [wanted]


def wait_for(look: Callable[[], Any]) -> Any:
    """What ``look`` gives once it gives something."""
    deadline = time.monotonic() + 30
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("name", ["toolbench", "bfcl", "webshop"])
def test_the_larger_servers_prove_themselves_too(name: str, tmp_path: Path) -> None:
    with running_server(tmp_path, module=f"envs.{name}") as server:
        status, body = http(server, "/validate")
        health = server.health()
        baselines = wait_for(lambda: server.health()["baselines"]) if name == "webshop" else []
    assert (status, json.loads(body)["ok"], json.loads(body)["gold_reward"]) == (200, True, 1.0)
    assert health["deterministic"] is True
    if name == "webshop":
        (rules,) = baselines
        assert rules["name"] == "rules" and rules["episodes"] == 300
        assert 0.3 < rules["success"] < rules["reward"] < 1.0
