"""More rollouts than sessions: they wait for their turn, which costs no attempt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.helpers import (
    ScriptedEngine,
    echo_behaviour,
    error,
    of_type,
)
from tests.training.rollout.bench import Bench, Clock, free_port, openenv_server, raw_server, tools_server
from training.errors import EnvironmentFull
from training.rewards.base import Episode, Score


@pytest.mark.parametrize("sessions", [0, 1])
def test_eight_rollouts_are_played_on_one_slot_one_after_another(tmp_path: Path, tokenizer: Any, sessions: int) -> None:
    """OpenEnv's own servers take one session; 6 of 8 rollouts were excluded."""
    port = free_port()
    with tools_server(port, "--slots", "1"):
        url = f"http://127.0.0.1:{port}"
        bench = Bench(tmp_path, tokenizer, url, config={"environment": {"sessions": sessions}})
        results = [bench.collect(step) for step in (1, 2)]
    assert [result.figures["rollouts/excluded"] for result in results] == [0.0, 0.0]
    assert [result.figures["env/errors"] for result in results] == [0.0, 0.0], "waiting costs no attempt"
    assert bench.held() == []


def test_a_server_that_does_not_tell_its_slots_shows_them_by_refusing(tmp_path: Path, tokenizer: Any) -> None:
    """As OpenEnv's own servers do it, the refusal comes before the first word and the socket is closed."""
    port = free_port()
    taken: list[int] = []
    refused: list[int] = []

    async def one_slot(socket: Any) -> None:
        if taken:
            refused.append(1)
            await socket.send(error("CAPACITY_REACHED", "Server at capacity: 1/1 sessions active."))
            await socket.close()
            return
        taken.append(1)
        try:
            turn = 0
            async for text in socket:
                frame = json.loads(text)
                if frame["type"] == "close":
                    return
                await socket.send(await echo_behaviour(socket, frame, turn))
                turn += 1
        finally:
            taken.clear()

    with raw_server(one_slot, port):
        result = Bench(tmp_path, tokenizer, f"http://127.0.0.1:{port}").collect()
    assert result.figures["rollouts/excluded"] == 0 and 1 <= len(refused) <= 16


def test_a_server_that_is_full_of_others_is_waited_for_and_named_full(
    tmp_path: Path, tokenizer: Any, clock: Clock
) -> None:
    """74 of 76 refusals were reported as "hung up"."""

    async def full(socket: Any) -> None:
        await socket.send(error("CAPACITY_REACHED", "Server at capacity"))
        await socket.close()

    port = free_port()
    with raw_server(full, port), pytest.raises(EnvironmentFull, match="was full for 10 min") as caught:
        Bench(tmp_path, tokenizer, f"http://127.0.0.1:{port}").collect()
    assert caught.value.pauses and "at capacity" in caught.value.message
    assert {event.error.code for event in of_type(tmp_path, "held")} == {"environment_full"}


def test_openenvs_default_of_one_session_plays_a_whole_step_and_wrong_actions_are_paid_for(
    tmp_path: Path, tokenizer: Any
) -> None:
    """The ``openenv`` package's own server, untouched, and everything at its default here."""
    engine = ScriptedEngine(tokenizer, ["go up", "right"])
    place = {"protocol": "openenv-text", "options": {"action_field": "move"}}

    def found(episode: Episode) -> Score:
        assert episode.env_reward is not None
        return Score(parts={"task_success": episode.env_reward}, total=episode.env_reward)

    with openenv_server() as url:
        bench = Bench(tmp_path, tokenizer, url, engine=engine, scorer=found, config={"environment": place})
        result = bench.collect()
    assert result.figures["rollouts/excluded"] == 0 and result.figures["env/errors"] <= 8
    assert {rollout.reward for rollout in result.rollouts} == {1.0}
    assert {rollout.trajectory.parse_errors for rollout in result.rollouts} == {1}
