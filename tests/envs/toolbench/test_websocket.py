from __future__ import annotations

import asyncio
from typing import Any

from envs.toolbench.validate import gold_steps
from envs.toolbench.world import draw_task
from envs.wire import Observation
from tests.envs.client import Server, error_code, run, session
from tests.envs.conftest import TOKEN
from tests.envs.toolbench.servers import send

FORECAST = "forecast_for_weather_desk"


def test_a_whole_episode_of_our_own_world(guarded_server: Server) -> None:
    async def play() -> None:
        async with session(guarded_server) as client:
            for index in (0, 1):
                first = await client.reset({"index": index, "task_set": "world-1"})
                Observation.model_validate(first["observation"])
                for step in gold_steps(draw_task(index)):
                    call = step.tool_calls[0]
                    last = await client.step("", (call.name, call.arguments))
                assert (last["reward"], last["done"]) == (1.0, True)
            assert error_code(await client.send({"type": "step", "data": {}})) == "EXECUTION_ERROR"

    run(play())


def test_sessions_do_not_mix(file_server: Server) -> None:
    async def one(number: int) -> tuple[Any, ...]:
        async with session(file_server) as client:
            first = await client.reset({"query_id": (7, 9)[number % 2]})
            seen = []
            for _ in range(5):
                # Only query 7 has this function.
                answer = await client.step("", ("shape_for_weather_desk", {"city": f"c{number}"}))
                seen.append(answer["observation"]["messages"][0]["content"])
            end = await client.step("", ("Finish", {"return_type": "give_answer", "final_answer": "x"}))
            assert len(set(seen)) == 1
            return (
                first["observation"]["info"]["query_id"],
                seen[0],
                end["observation"]["reward_parts"]["function_call"],
            )

    async def many() -> list[tuple[Any, ...]]:
        return list(await asyncio.gather(*(one(number) for number in range(32))))

    for number, (query_id, content, function_call) in enumerate(run(many())):
        assert query_id == (7, 9)[number % 2]
        assert (f'"city": "c{number}"' in content) == (number % 2 == 0)
        assert function_call == (0.5 if number % 2 == 0 else -2.5)


def test_hostile_frames_get_an_answer_and_the_session_lives(file_server: Server) -> None:
    async def attack() -> None:
        async with session(file_server) as client:
            for task in ({"query_id": 10**30}, {"query_id": None, "index": "x"}, {"query": "x", "api_list": 5}):
                answer = await client.send({"type": "reset", "data": {"task": task}})
                assert error_code(answer) == "EXECUTION_ERROR"
            await client.reset({"query_id": 7, "speech": "text"})
            for text in ("\x00", "[" * 10_000, "\ud800", "Thought: \nAction: ../..\nAction Input: {}"):
                assert (await client.step(text))["done"] is False
            surrogate = 'Thought: \nAction: shape_for_weather_desk\nAction Input: {"city": "\\ud800"}'
            assert (await client.step(surrogate))["observation"]["info"]["status"] == 0
            assert error_code(await client.send("{")) == "INVALID_JSON"
            nan = '{"type": "step", "data": {"tool_calls": [{"id": "1", "name": "%s", "arguments": {"city": NaN}}]}}'
            answer = await client.send(nan % FORECAST)
            assert answer["data"]["observation"]["info"]["status"] == 2

    run(attack())


def test_health_and_proof(guarded_server: Server) -> None:
    health = guarded_server.health()
    assert (health["name"], health["slots"], health["deterministic"]) == ("toolbench", 2, True)
    answer = send(guarded_server, "/validate", None, Authorization=f"Bearer {TOKEN}")
    assert answer.status == 200
    assert (answer.body["ok"], answer.body["gold_reward"], answer.body["bad_reward"]) == (True, 1.0, 0.0)


def test_a_server_with_data_proves_that_its_records_are_reachable(file_server: Server) -> None:
    body = send(file_server, "/validate", None).body
    assert body["gold_reward"] is None and body["episodes"] == 307
    assert body["problems"] == ["gold answer: weather_desk/forecast: key: Expecting value"]
