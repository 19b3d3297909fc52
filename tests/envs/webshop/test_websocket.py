from __future__ import annotations

import asyncio
from typing import Any

from envs.webshop.session import Shop
from envs.webshop.validate import perfect_steps
from envs.wire import Observation
from tests.envs.client import Server, error_code, run, session
from tests.envs.webshop.servers import AgentGymClient


def test_a_visit_over_the_websocket(shop: Shop, shop_server: Server) -> None:
    async def visit(session_id: int) -> float:
        async with session(shop_server) as client:
            first = await client.reset({"session_id": session_id})
            Observation.model_validate(first["observation"])
            for step in perfect_steps(shop, session_id):
                call = step.tool_calls[0]
                last = await client.step("", (call.name, call.arguments))
            assert last["observation"]["reward_parts"]["task_success"] == 1.0
            assert error_code(await client.send({"type": "step", "data": {}})) == "EXECUTION_ERROR"
            return last["reward"]

    async def visits() -> list[float]:
        return list(await asyncio.gather(*(visit(session_id) for session_id in range(16))))

    assert run(visits()) == [1.0] * 16


def test_two_sessions_on_one_visit_do_not_meet(shop_server: Server) -> None:
    async def both() -> None:
        async with session(shop_server) as one, session(shop_server) as other:
            await one.reset({"session_id": 1})
            await other.reset({"session_id": 1})
            await one.step("Action: search[shoes]")
            page = await other.step("nothing")
            assert "Back to Search" not in page["observation"]["messages"][0]["content"]

    run(both())


def test_unplayable_rows_and_garbage_get_an_error_and_the_session_lives(shop_server: Server) -> None:
    async def attack() -> None:
        async with session(shop_server) as client:
            for task in ({"session_id": -1}, {"item_id": "x"}, {"session_id": 10**12}):
                answer = await client.send({"type": "reset", "data": {"task": task}})
                assert error_code(answer) == "EXECUTION_ERROR"
            assert error_code(await client.send("{")) == "INVALID_JSON"
            await client.reset({})
            hostile: list[Any] = ["search[" + "a " * 50_000 + "]", "click[\x00]", "[" * 10_000, "search[\\ud800]"]
            for text in hostile:
                assert (await client.step(text))["done"] is False
            assert (await client.step("", ("search", {"keywords": "\ud83d"})))["done"] is False

    run(attack())


def test_health_counts_both_kinds_of_session(shop_server: Server) -> None:
    shop_server.wait_for_sessions(0, within_s=5)
    client = AgentGymClient(shop_server)
    number = client.post("/create").body

    async def count() -> int:
        async with session(shop_server) as one:
            await one.reset({})
            return (await asyncio.to_thread(shop_server.health))["sessions"]

    assert run(count()) == 2
    assert client.post("/close", env_idx=number).body is True
    shop_server.wait_for_sessions(0, within_s=5)
    health = shop_server.health()
    assert (health["name"], health["slots"], health["status"]) == ("webshop", 512, "healthy")
