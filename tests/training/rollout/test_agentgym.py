"""AgentGym's routes, played against a small server of them: identity, numbers, texts, rewards, busy servers, close."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.environment import environment_server
from envs.wire import StepRequest, ToolCall
from tests.training.rollout.foreign import Asked, Reply, http_server, play, say, settings
from training.errors import (
    ConfigError,
    DataError,
    EnvironmentFault,
    EnvironmentFull,
    EnvironmentProtocolError,
    TiltyardError,
)
from training.rollout.protocols import check_server
from training.rollout.protocols.agentgym import action_text, task_number
from training.rollout.session import SessionLost

BABYAI = {"id_field": "id", "reset_field": "data_idx", "identity": "This is environment BabyAI."}


class Guessing:
    """Guess the number that ``data_idx`` is: in BabyAI's shape (``id``, ``observation``) or WebShop's."""

    def __init__(self, *, webshop: bool = False, busy: int = 0, reward: Any = None, step: Reply | None = None) -> None:
        self.webshop, self.busy, self.reward, self.fault = webshop, busy, reward, step
        self.asked: list[Asked] = []
        self.tasks: dict[int, int] = {}
        self.closed: list[int] = []

    def __call__(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        if asked.method == "GET" and asked.path == "/":
            return Reply(200, "ok" if self.webshop else "This is environment BabyAI.")
        if self.busy:
            self.busy -= 1
            return Reply(503, b"busy")
        return getattr(self, asked.path.strip("/"))(asked)

    def create(self, asked: Asked) -> Reply:
        number = len(self.tasks) + 7
        self.tasks[number] = -1
        return Reply(200, number if self.webshop else {"id": number})

    def reset(self, asked: Asked) -> Reply:
        self.tasks[asked.body["env_idx" if self.webshop else "id"]] = asked.body[
            "session_id" if self.webshop else "data_idx"
        ]
        return Reply(200, ["Guess.", None] if self.webshop else {"reward": 0.0, "done": False})

    def observation(self, asked: Asked) -> Reply:
        return Reply(200, f"Guess, number {asked.query['id']}.")

    def step(self, asked: Asked) -> Reply:
        number = asked.body["env_idx" if self.webshop else "id"]
        if number not in self.tasks:
            return Reply(500, b"Internal Server Error")
        if self.fault is not None:
            return self.fault
        right = asked.body["action"] == str(self.tasks[number])
        reward = (right if self.reward is None else self.reward) if not self.webshop else 0.25
        text = "Right!" if right else "Wrong."
        return Reply(200, {"state" if self.webshop else "observation": text, "reward": reward, "done": right})

    def close(self, asked: Asked) -> Reply:
        self.closed.append(asked.body["id" if not self.webshop else "env_idx"])
        return Reply(404, b"no such route")


def test_an_episode_in_babyais_shape_goes_from_create_to_close() -> None:
    server = Guessing()
    with http_server(server) as url:
        first, wrong, right = play(
            settings(url, "agentgym", options=BABYAI),
            [say("Thought: low.\n\nAction: 11"), say("I think.\nAction:\n12 ")],
            {"item_id": "babyai_12"},
        )
    assert [m.model_dump(exclude_none=True) for m in first.messages] == [
        {"role": "user", "content": "Guess, number 7."}
    ]
    assert (wrong.messages[0].content, wrong.done, wrong.reward) == ("Wrong.", False, 0.0)
    assert (right.messages[0].content, right.done, right.reward) == ("Right!", True, 1.0)
    assert [asked.path for asked in server.asked] == ["/create", "/reset", "/observation", "/step", "/step", "/close"]
    assert server.asked[0].body is None and server.asked[1].body == {"id": 7, "data_idx": 12}
    assert [asked.body["action"] for asked in server.asked[3:5]] == ["11", "12"]
    assert server.closed == [7]


def test_an_episode_in_webshops_shape_sums_rewards_where_asked() -> None:
    row = {"extra_info": {"interaction_kwargs": {"session_id": 5238}}}
    turns = [say("click[a]"), say("5238")]
    for how, total in (("last", 0.25), ("sum", 0.5)):
        server = Guessing(webshop=True)
        with http_server(server) as url:
            first, _wrong, last = play(settings(url, "agentgym", options={"reward": how}), turns, row)
        assert first.messages[0].content == "Guess." and (last.done, last.reward) == (True, total)
        assert server.asked[1].body == {"env_idx": 7, "session_id": 5238}


def test_create_and_reset_take_the_bodies_of_the_options() -> None:
    server = Guessing()
    options = {**BABYAI, "create_body": {"goal": None}, "reset_body": {"world_type": "Text"}}
    with http_server(server) as url:
        play(settings(url, "agentgym", options=options), [], {"session_id": 3})
    assert server.asked[0].body == {"goal": None}
    assert server.asked[1].body == {"id": 7, "data_idx": 3, "world_type": "Text"}


def test_a_busy_server_is_asked_again_and_then_full() -> None:
    with http_server(Guessing(busy=3)) as url:
        assert play(settings(url, "agentgym", options=BABYAI), [], {"session_id": 1})
    with http_server(Guessing(busy=99)) as url, pytest.raises(EnvironmentFull):
        play(settings(url, "agentgym", options=BABYAI), [], {"session_id": 1})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"observation": "x", "reward": "0.5", "done": False}, EnvironmentProtocolError),
        ({"observation": "x", "reward": [1], "done": False}, EnvironmentProtocolError),
        ({"observation": "x", "reward": 10**400, "done": False}, EnvironmentProtocolError),
        ({"observation": "x", "reward": 0, "done": 1}, EnvironmentProtocolError),
        ({"observation": "x", "reward": 0}, EnvironmentProtocolError),
        ({"observation": 3, "reward": 0, "done": False}, EnvironmentProtocolError),
        ("text", EnvironmentProtocolError),
        ([], EnvironmentProtocolError),
        (b'{"observation": "x", "reward": NaN, "done": false}', EnvironmentProtocolError),
        (b'{"observation": "x", "reward": 1e999, "done": false}', EnvironmentProtocolError),
        (b'{"observation": "\\ud800", "reward": 0, "done": false}', EnvironmentProtocolError),
        ({"error": "the simulator crashed"}, EnvironmentFault),
    ],
)
def test_a_bad_answer_to_a_step_has_its_typed_error(value: Any, expected: type[TiltyardError]) -> None:
    with http_server(Guessing(step=Reply(200, value))) as url, pytest.raises(expected):
        play(settings(url, "agentgym", options=BABYAI), [say("1")], {"session_id": 1})


def test_a_missing_reward_is_missing_and_not_zero() -> None:
    with http_server(Guessing(step=Reply(200, {"observation": "x", "done": True}))) as url:
        assert play(settings(url, "agentgym", options=BABYAI), [say("1")], {"session_id": 1})[-1].reward is None


def test_an_environment_that_the_server_forgot_is_a_lost_session() -> None:
    server = Guessing()

    def forget(asked: Asked) -> Reply:
        if asked.path == "/step":
            server.tasks.clear()
        return server(asked)

    with http_server(forget) as url, pytest.raises(SessionLost):
        play(settings(url, "agentgym", options=BABYAI), [say("1")], {"session_id": 1})


@pytest.mark.parametrize("created", [None, True, {"id": None}, {"number": 3}, [1], 1.5])
def test_create_must_answer_a_number(created: Any) -> None:
    with http_server(lambda asked: Reply(200, created)) as url, pytest.raises(EnvironmentProtocolError):
        play(settings(url, "agentgym"), [], {"session_id": 1})


def test_another_environment_on_the_same_port_is_refused() -> None:
    with http_server(Guessing()) as url:
        assert check_server(settings(url, "agentgym", options=BABYAI)).name == "BabyAI"
        facts = check_server(settings(url, "agentgym", name="BabyAI"))
        assert (facts.name, facts.slots, facts.free) == ("BabyAI", None, None)
        with pytest.raises(EnvironmentProtocolError, match="'BabyAI', not 'TextCraft'"):
            check_server(settings(url, "agentgym", name="TextCraft"))
        with pytest.raises(EnvironmentProtocolError, match="BabyAI"):
            check_server(settings(url, "agentgym", options={"identity": "ok"}))


@pytest.mark.parametrize(
    ("row", "field", "number"),
    [
        ({"session_id": 5}, "", 5),
        ({"session_id": 0}, "", 0),
        ({"item_id": "webshop_5238"}, "", 5238),
        ({"extra_info": {"interaction_kwargs": {"session_id": 9}}}, "", 9),
        ({"a": {"b": "12"}}, "a.b", 12),
        ({"game": "pick-and-place"}, "game", "pick-and-place"),
    ],
)
def test_a_row_names_its_task(row: dict[str, Any], field: str, number: int | str) -> None:
    assert task_number(row, field) == number


@pytest.mark.parametrize("row", [{}, {"session_id": None}, {"session_id": True}, {"session_id": ""}, {"extra_info": 3}])
def test_a_row_without_a_task_says_so(row: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="names no task"):
        task_number(row)


def test_calls_that_a_dialect_read_are_written_back() -> None:
    request = StepRequest(tool_calls=[ToolCall(id="1", name="click", arguments={"value": "buy now"})])
    assert action_text(request) == "click[buy now]"
    assert action_text(say("no action at all")) == "no action at all"


@pytest.mark.parametrize(
    ("options", "where"), [({"idfield": "id"}, "idfield"), ({"id_field": "a b"}, "id_field"), ({"reward": 3}, "reward")]
)
def test_a_wrong_option_is_named(options: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError, match=f"environment.options.{where}"):
        play(settings("http://127.0.0.1:9", "agentgym", options=options), [])


def test_our_webshop_is_played_over_its_agentgym_routes() -> None:
    with environment_server("webshop", "--products", "60") as server:
        config = settings(server.url, "agentgym", options={"identity": "ok"}, reset_timeout_s=20, step_timeout_s=20)
        assert check_server(config).name == "AgentGym"
        first, searched, wrong = play(
            config, [say("Action: search[shirt]"), say("click[no such button]")], {"item_id": "webshop_3"}
        )
    assert "Instruction:" in first.messages[0].content and first.reward is None
    assert "Back to Search" in searched.messages[0].content and (searched.done, searched.reward) == (False, 0.0)
    assert wrong.messages[0].content == searched.messages[0].content
