from __future__ import annotations

from envs.bfcl.application import gold_steps
from envs.bfcl.server import server_version
from envs.bfcl.tasks import read_row, resolve
from envs.wire import Observation
from tests.envs.client import Server, error_code, run, session


def test_health_names_the_data_that_is_played(bfcl_server: Server) -> None:
    health = bfcl_server.health()
    assert (health["name"], health["version"], health["slots"]) == ("bfcl", server_version(), 512)
    assert health["version"].endswith(("+bfcl.v3", "+bfcl.v4"))


def test_a_gold_episode_over_the_socket_scores_one(bfcl_server: Server) -> None:
    name = "multi_turn_miss_func_0"

    async def episode() -> None:
        async with session(bfcl_server) as client:
            first = await client.reset({"id": name})
            Observation.model_validate(first["observation"])
            assert [message["role"] for message in first["observation"]["messages"]] == ["system", "user"]
            assert len(first["observation"]["tools"]) == 31
            for step in gold_steps(resolve(read_row({"id": name}), 0)):
                last = await client.send({"type": "step", "data": step.model_dump()})
            data = last["data"]
            assert (data["done"], data["reward"]) == (True, 1.0)
            assert data["observation"]["reward_parts"]["task_success"] == 1.0
            assert error_code(await client.send({"type": "step", "data": {}})) == "EXECUTION_ERROR"

    run(episode())


def test_refusals_and_hostile_frames_leave_the_session_alive(bfcl_server: Server) -> None:
    async def attack() -> None:
        async with session(bfcl_server) as client:
            refused = await client.send({"type": "reset", "data": {"task": {"id": "x"}}})
            assert error_code(refused) == "EXECUTION_ERROR"
            assert "has no entry" in refused["data"]["message"]
            await client.reset(seed=1)
            seen = await client.step("", ("__class__", {}), ("kill", {}), ("\ud800", {"\ud800": ["\udfff"]}))
            assert seen["done"] is False
            assert (await client.reset({"id": "multi_turn_base_1"}))["observation"]["info"]["id"] == "multi_turn_base_1"
            await client.send({"type": "reset", "data": {"task": {"id": "x"}}})
            over = await client.send({"type": "step", "data": {}})
            assert error_code(over) == "EXECUTION_ERROR" and "send reset first" in over["data"]["message"]

    run(attack())
    bfcl_server.wait_for_sessions(0, 10)
