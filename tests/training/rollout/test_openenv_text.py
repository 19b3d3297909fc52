"""OpenEnv servers with one text field, played against a scripted websocket server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.training.helpers import error, scripted_server
from tests.training.rollout.bench import openenv_server
from tests.training.rollout.foreign import call, play, say, settings
from training.errors import (
    EnvironmentFault,
    EnvironmentFull,
    EnvironmentProtocolError,
    EnvironmentTimeout,
    EnvironmentUnreachable,
    TiltyardError,
)
from training.rollout.protocols import check_server

Frames = list[dict[str, Any]]


def observed(done: bool = False, reward: Any = None, **fields: Any) -> str:
    return json.dumps({"type": "observation", "data": {"observation": fields, "done": done, "reward": reward}})


def echo(frames: Frames, field: str = "echoed_message", action: str = "message") -> Any:
    """As OpenEnv's echo environment: answers the text with its length as reward; ``stop`` ends."""

    async def behave(socket: Any, frame: dict[str, Any], turn: int) -> str:
        frames.append(frame)
        if frame["type"] == "reset":
            return observed(**{field: "Echo environment ready!"}, metadata={})
        text = frame["data"][action]
        return observed(text == "stop", len(text) / 10, **{field: text}, message_length=len(text))

    return behave


def test_text_goes_out_and_comes_back_until_the_server_ends() -> None:
    frames: Frames = []
    with scripted_server(echo(frames)) as url:
        config = settings(url, "openenv-text", options={"reset_fields": ["level", "absent"]})
        first, second, last = play(config, [say("hello"), say("stop")], {"level": 3})
    assert [m.model_dump(exclude_none=True) for m in first.messages + second.messages] == [
        {"role": "user", "content": "Echo environment ready!"},
        {"role": "user", "content": "hello"},
    ]
    assert (second.done, second.reward) == (False, 0.5) and (last.done, last.reward) == (True, 0.4)
    assert frames[0] == {"type": "reset", "data": {"seed": 1, "episode_id": "e1", "task": {"level": 3}, "level": 3}}
    assert frames[1] == {"type": "step", "data": {"message": "hello"}}


def test_fields_and_the_sum_of_rewards_are_options() -> None:
    frames: Frames = []
    options = {"action_field": "code", "observation_field": "stdout", "reward": "sum"}
    with scripted_server(echo(frames, "stdout", "code")) as url:
        last = play(settings(url, "openenv-text", options=options), [say("hello"), say("stop")])[-1]
    assert last.messages[0].content == "stop" and last.reward == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (observed(other="x", another="y"), EnvironmentProtocolError),
        (observed(reward="1", text="x"), EnvironmentProtocolError),
        ('{"type": "observation", "data": {"observation": {"text": "x"}, "reward": NaN}}', EnvironmentProtocolError),
        ('{"type": "observation", "data": {"observation": {"text": "x"}, "done": 1}}', EnvironmentProtocolError),
        ('{"type": "observation", "data": {"observation": {"text": "\\ud800"}}}', EnvironmentProtocolError),
        ("[" * 50_000, EnvironmentProtocolError),
        (error("EXECUTION_ERROR"), EnvironmentFault),
        (error("VALIDATION_ERROR"), EnvironmentProtocolError),
    ],
)
def test_a_bad_answer_has_its_typed_error(answer: str, expected: type[TiltyardError]) -> None:
    async def behave(socket: Any, frame: dict[str, Any], turn: int) -> str:
        return answer if turn else observed(text="begin")

    with scripted_server(behave) as url, pytest.raises(expected):
        play(settings(url, "openenv-text"), [say("x")])


@pytest.mark.parametrize("protocol", ["openenv-text", "openenv-mcp"])
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("hangs", EnvironmentTimeout),
        ("hangs up", EnvironmentUnreachable),
        ("sends 5 MB", EnvironmentProtocolError),
        ("sends nothing readable", EnvironmentProtocolError),
        ("is full", EnvironmentFull),
    ],
)
def test_a_fault_in_mid_episode_has_its_typed_error(protocol: str, fault: str, expected: type[TiltyardError]) -> None:
    async def behave(socket: Any, frame: dict[str, Any], turn: int) -> str | bytes | None:
        if turn < 2:
            return observed(text="begin", tools=[{"name": "echo", "input_schema": {}}])
        if fault == "hangs":
            await asyncio.sleep(5)
        if fault == "hangs up":
            socket.transport.abort()
            return None
        if fault == "is full":
            return error("CAPACITY_REACHED")
        return observed(text="x" * (5 << 20)) if fault == "sends 5 MB" else b"\xff\x00"

    turns = [call("echo", text="a"), call("echo", text="b")]
    with scripted_server(behave) as url, pytest.raises(expected):
        play(settings(url, protocol), turns)


def test_a_server_without_health_is_no_server() -> None:
    with scripted_server() as url, pytest.raises(TiltyardError):
        check_server(settings(url, "openenv-text"))


def test_a_question_in_an_unusual_field_is_found_and_a_move_that_is_none_is_reported() -> None:
    """With OpenEnv's own parts: the episode began without its question, and a wrong move excluded it."""
    with openenv_server() as url:
        config = settings(url, "openenv-text", options={"action_field": "move"})
        first, wrong, last = play(config, [say("go up"), say("right")])
    assert [message.content for message in first.messages] == ["Where is the treasure, left or right?"]
    assert not wrong.done and wrong.reward is None
    assert wrong.messages[0].content.startswith("Error: the action was not understood: Input should be 'left' or")
    assert wrong.info["parse_error"] and (last.done, last.reward) == (True, 1.0)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"observation_field": "question"}, "question is missing, and it has metadata, riddle"),
        ({"action_field": "go"}, "move"),
    ],
)
def test_a_wrong_field_is_named_with_those_that_there_are(options: dict[str, str], named: str) -> None:
    """What the operator got wrong is not reported to the policy, nor is it made to pay for it."""
    with openenv_server() as url:
        config = settings(url, "openenv-text", options=options)
        with pytest.raises(EnvironmentProtocolError, match=named):
            play(config, [say("right")])


@pytest.mark.parametrize(
    ("fields", "task", "begins"),
    [
        ({"stdout": "Q", "stderr": "E"}, {}, None),
        ({"stdout": "Q", "stderr": ""}, {}, "Q"),
        ({"prompt": "", "text": "Q"}, {}, "Q"),
        ({"board": [1, 2]}, {}, None),
        ({"board": [1, 2]}, {"prompt": "Play."}, ""),
        ({"stdout": "Q", "stderr": "E"}, {"prompt": "Play."}, None),
    ],
)
def test_an_episode_never_begins_without_its_question(
    fields: dict[str, Any], task: dict[str, Any], begins: str | None
) -> None:
    async def behave(socket: Any, frame: dict[str, Any], turn: int) -> str:
        return observed(**fields)

    with scripted_server(behave) as url:
        config = settings(url, "openenv-text")
        if begins is None:
            with pytest.raises(EnvironmentProtocolError, match=f"it has .*{max(fields)}") as caught:
                play(config, [], task)
            assert "options.observation_field" in caught.value.hint
        else:
            assert "".join(message.content for message in play(config, [], task)[0].messages) == begins
