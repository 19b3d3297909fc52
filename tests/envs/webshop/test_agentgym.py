from __future__ import annotations

import time
from typing import Any

import pytest

from envs.webshop.session import Shop
from envs.webshop.validate import perfect_steps
from tests.envs.client import Server, error_code, run, session
from tests.envs.webshop.servers import AgentGymClient, Answer


@pytest.fixture
def client(shop_server: Server) -> AgentGymClient:
    return AgentGymClient(shop_server)


def actions_of(shop: Shop, session_id: int) -> list[str]:
    calls = [step.tool_calls[0] for step in perfect_steps(shop, session_id)]
    return [f"{call.name}[{next(iter(call.arguments.values()))}]" for call in calls]


def assert_error(answer: Answer, status: int, code: str) -> None:
    assert (answer.status, answer.body["code"]) == (status, code)
    assert answer.body.keys() == {"ok", "code", "message", "detail", "request_id"}
    assert answer.body["message"] and "Traceback" not in answer.body["message"]


def test_a_whole_visit(shop: Shop, client: AgentGymClient) -> None:
    assert client.get("/") == Answer(200, "ok")
    number = client.post("/create").body
    assert isinstance(number, int) and number in client.get("/list_envs").body
    observation, info = client.post("/reset", env_idx=number, session_id=4).body
    instruction = shop.goals[4].instruction
    assert (observation, info) == (f"WebShop [SEP] Instruction: [SEP] {instruction} [SEP] Search", None)
    assert client.get("/observation", env_idx=number).body == observation
    assert client.get("/instruction_text", env_idx=number).body == f"Instruction:{instruction}"
    assert client.get("/available_actions", env_idx=number).body == {"has_search_bar": True, "clickables": ["search"]}
    *before, buy = actions_of(shop, 4)
    for action in before:
        step = client.post("/step", env_idx=number, action=action).body
        assert (step["reward"], step["done"], step["info"]) == (0.0, False, None)
        assert client.get("/observation", env_idx=number).body == step["state"] != observation
    end = client.post("/step", env_idx=number, action=buy).body
    assert (end["reward"], end["done"]) == (1.0, True)
    after = client.post("/step", env_idx=number, action="search[more]").body
    assert after == {**end, "reward": 0.0}
    assert client.post("/close", env_idx=number).body is True
    assert client.post("/close", env_idx=number).body is False
    assert_error(client.get("/observation", env_idx=number), 404, "UNKNOWN_ENVIRONMENT")


def test_what_does_nothing_is_no_error(client: AgentGymClient) -> None:
    number = client.post("/create").body
    page = client.get("/observation", env_idx=number).body
    for action in ("", "search[]", "click[Buy Now]", "click[search]", "dance", "\x00", "[" * 10_000):
        step = client.post("/step", env_idx=number, action=action)
        assert step == Answer(200, {"state": page, "reward": 0.0, "done": False, "info": None})
    client.post("/close", env_idx=number)


def test_the_state_has_the_page_without_markup_of_others(client: AgentGymClient) -> None:
    number = client.post("/create").body
    client.post("/reset", env_idx=number, session_id=0)
    client.post("/step", env_idx=number, action="search[shirt]")
    state = client.get("/state", env_idx=number).body
    assert state.keys() == {"url", "html", "instruction_text"}
    assert "Page 1 (Total results: " in state["html"] and "Next &gt;" in state["html"]
    client.post("/close", env_idx=number)


def test_a_reset_without_a_visit_draws_one(client: AgentGymClient) -> None:
    number = client.post("/create").body
    pages = {client.post("/reset", env_idx=number).body[0] for _ in range(10)}
    assert len(pages) > 5
    client.post("/close", env_idx=number)


@pytest.mark.parametrize("path", ["/reset", "/step", "/close"])
@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"5", b"[]", b"{}", b'{"env_idx": "x"}', b'{"env_idx": 1.5}', b'{"env_idx": null}', b"\xff\xfe"),
        *(b'{"env_idx": 1, "action": 5, "session_id": "x"}', b"[" * 100_000, b'{"env_idx": ' + b"9" * 5000 + b"}"),
        b'{"env_idx": 1, "action": "\\ud800", "session_id": []}',
    ],
)
def test_wrong_bodies_are_refused_with_a_sentence(client: AgentGymClient, path: str, body: bytes) -> None:
    answer = client.raw(path, body)
    if path == "/close" and answer.status == 200:
        assert answer.body is False
    else:
        assert_error(answer, 422, "VALIDATION_ERROR")


@pytest.mark.parametrize("query", [{}, {"env_idx": "x"}, {"env_idx": "1.5"}, {"env_idx": "9" * 5000}, {"env_idx": "٣"}])
def test_wrong_queries_are_refused(client: AgentGymClient, query: dict[str, Any]) -> None:
    for path in ("/observation", "/state", "/available_actions", "/instruction_text"):
        assert_error(client.get(path, **query), 422, "VALIDATION_ERROR")


@pytest.mark.parametrize("written", ["12", 12.0, " 12 ", "12.0"])
def test_numbers_are_read_as_upstream_reads_them(shop: Shop, client: AgentGymClient, written: str | float) -> None:
    """Upstream's models take ``"12"`` and ``12.0`` for 12, as pandas and forms write it."""
    number = client.post("/create").body
    opened = client.post("/reset", env_idx=str(number), session_id=written)
    assert opened.status == 200
    assert shop.goals[12].instruction in opened.body[0]
    assert client.post("/step", env_idx=float(number), action="search[a]").status == 200
    assert client.get("/observation", env_idx=f"{number}.0").status == 200
    assert_error(client.post("/reset", env_idx=number, session_id=12.5), 422, "VALIDATION_ERROR")
    client.post("/close", env_idx=number)


def test_unknown_environments_visits_and_routes(client: AgentGymClient) -> None:
    assert_error(client.post("/step", env_idx=1, action="search[a]"), 404, "UNKNOWN_ENVIRONMENT")
    assert_error(client.post("/reset", env_idx=1, session_id=0), 404, "UNKNOWN_ENVIRONMENT")
    assert_error(client.get("/observation", env_idx=1), 404, "UNKNOWN_ENVIRONMENT")
    number = client.post("/create").body
    for session_id in (-1, 10**9, 10**30):
        assert_error(client.post("/reset", env_idx=number, session_id=session_id), 422, "SESSION_OUT_OF_RANGE")
    client.post("/close", env_idx=number)
    assert client.get("/nothing").status == 404
    assert_error(client.get("/step"), 405, "HTTP_405")


def test_a_body_over_a_megabyte_is_refused(client: AgentGymClient) -> None:
    assert_error(client.post("/step", env_idx=1, action="a" * 1_100_000), 413, "TOO_LARGE")


def test_slots_are_shared_and_idle_environments_expire(strict_shop: Server) -> None:
    client = AgentGymClient(strict_shop, strict_shop.token)
    first = client.post("/create").body

    async def full() -> None:
        async with session(strict_shop) as socket:
            await socket.reset({})
            assert_error(client.post("/create"), 503, "CAPACITY_REACHED")
            async with session(strict_shop) as refused:
                assert error_code(await refused.receive()) == "CAPACITY_REACHED"
            assert client.get("/list_envs").body == [first]
            assert (await socket.step("search[a]"))["done"] is False

    run(full())
    started = time.monotonic()
    while client.get("/list_envs").body:
        assert time.monotonic() - started < 5
        time.sleep(0.1)
    assert_error(client.get("/observation", env_idx=first), 404, "UNKNOWN_ENVIRONMENT")
    assert [client.post("/create").status for _ in range(3)] == [200, 200, 503]


def test_the_token_guards_the_routes(strict_shop: Server) -> None:
    for token in (None, "wrong-token-0123456789"):
        assert_error(AgentGymClient(strict_shop, token).post("/create"), 401, "UNAUTHORIZED")
        assert_error(AgentGymClient(strict_shop, token).get("/"), 401, "UNAUTHORIZED")
    assert AgentGymClient(strict_shop, strict_shop.token).get("/").body == "ok"
    assert strict_shop.health()["name"] == "webshop"
