from __future__ import annotations

import json
from typing import Any

import pytest

from envs.toolbench.answers import Answerer
from envs.toolbench.bench import Bench
from envs.toolbench.virtual import SearchBody, Virtual
from tests.envs.client import Server
from tests.envs.conftest import TOKEN
from tests.envs.toolbench.builders import LONG_API
from tests.envs.toolbench.servers import Answer, call, send, virtual

OSLO = Answer(200, {"error": "", "response": "{'degrees': 7}"})
UNREAD = Answer(200, {"error": "Tool input parse error...\n", "response": ""})


def assert_error(answer: Answer, status: int, code: str) -> None:
    assert (answer.status, answer.body["code"]) == (status, code)
    assert answer.body.keys() == {"ok", "code", "message", "detail", "request_id"}
    assert answer.body["message"] and "Traceback" not in answer.body["message"]


@pytest.mark.parametrize(
    "over",
    [
        {},
        {"tool_input": '{"city": "Oslo"}'},
        {"tool_name": "Weather Desk", "api_name": "Forecast"},
        {"tool_name": "weather_desk_for_Data", "api_name": "forecast_for_weather_desk"},
        {"toolbench_key": "k", "strip": "truncate", "newer": 1},
    ],
)
def test_a_call_is_answered_however_it_is_named(file_server: Server, over: dict[str, Any]) -> None:
    assert virtual(file_server, **over) == OSLO


def test_the_order_of_arguments_and_the_kind_of_key_do_not_matter(file_server: Server) -> None:
    for arguments in ('{"city": "Oslo", "days": 2}', '{"days": 2, "city": "Oslo"}', {"days": 2, "city": "Oslo"}):
        assert virtual(file_server, tool_input=arguments).body["response"] == {"degrees": [7, 8]}
    where = {"a": [1, {"c": 3, "d": 4}], "b": 1}
    for nested in ({"where": where, "city": "Rome"}, {"city": "Rome", "where": dict(reversed(where.items()))}):
        assert virtual(file_server, tool_input=nested).body["response"] == "nested"


def test_apis_without_arguments_and_with_reserved_names(file_server: Server) -> None:
    for name in ("id", "is_id", "id_for_weather_desk"):
        assert virtual(file_server, api_name=name, tool_input="").body == {"error": "", "response": "an id"}


def test_simulated_unknown_and_failed_calls(file_server: Server) -> None:
    shape = virtual(file_server, api_name="shape")
    assert shape == virtual(file_server, api_name="shape")
    assert shape.body["error"] == "" and shape.body["response"]["city"] == "Oslo"
    assert virtual(file_server, api_name="nowhere").body["error"] == "No such function name: nowhere"
    assert virtual(file_server, tool_name="nowhere").body["error"] == "No such function name: forecast"
    assert virtual(file_server, category="G1_category").body["error"] == "No such function name: forecast"
    assert virtual(file_server, api_name=LONG_API, tool_input="{}").body == {
        **{"error": "Failed to generate fake response", "response": ""}
    }
    assert virtual(file_server, api_name="nothing", tool_input={"city": "4"}).body["response"] == "y" * 1000


def test_chat_with_user_is_answered(file_server: Server) -> None:
    wanted = Answer(200, {"error": "", "response": "Chat with user."})
    assert virtual(file_server, api_name="chat_with_user") == wanted
    assert virtual(file_server, tool_name="chat_with_user", tool_input="{") == wanted


@pytest.mark.parametrize("text", ["{", "five", "5", "[1]", "null", '{"a": NaN}', "[" * 100_000, "{'city': 'Oslo'}"])
def test_tool_inputs_that_cannot_be_read(file_server: Server, text: str) -> None:
    assert virtual(file_server, tool_input=text) == UNREAD


@pytest.mark.parametrize("name", ["category", "tool_name", "api_name", "tool_input", "strip", "toolbench_key"])
def test_a_missing_field_is_422_as_fastapi_answers_it(file_server: Server, name: str) -> None:
    body = call()
    del body[name]
    answer = send(file_server, "/virtual", json.dumps(body).encode())
    assert answer == Answer(422, {"detail": [{"type": "missing", "loc": ["body", name], "msg": "Field required"}]})


def test_wrong_types_are_422(file_server: Server) -> None:
    answer = virtual(file_server, tool_input=5, category=None)
    assert answer.status == 422
    assert [fault["loc"] for fault in answer.body["detail"]] == [
        *(["body", "category"], ["body", "tool_input", "str"], ["body", "tool_input", "dict[str,any]"])
    ]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"category": NaN}', b"9" * 5000, b"[]", b"null", b'"x"']
)
def test_bodies_that_are_no_request_are_422(file_server: Server, body: bytes) -> None:
    answer = send(file_server, "/virtual", body)
    assert answer.status == 422 and answer.body["detail"][0]["loc"][0] == "body"
    assert len(json.dumps(answer.body)) < 1000


@pytest.mark.parametrize("size", [1_100_000, 10_000_000])
def test_a_body_over_a_megabyte_is_refused(file_server: Server, size: int) -> None:
    try:
        answer = virtual(file_server, tool_input="x" * size)
    except OSError:
        return  # The server closed before all was sent.
    assert_error(answer, 413, "TOO_LARGE")


@pytest.mark.parametrize(
    "over",
    [
        {"tool_name": "../../etc/passwd"},
        {"category": "..", "tool_name": "x", "api_name": "secret"},
        {"category": "../cache", "tool_name": "secret"},
        {"api_name": "../../secret", "tool_name": "..", "category": "."},
        {"api_name": "x" * 10_000},
        {"category": "Da\x00ta"},
        {"tool_name": "\u202e"},
        {"tool_name": "", "api_name": "", "category": ""},
    ],
)
def test_hostile_names_find_nothing(file_server: Server, over: dict[str, str]) -> None:
    answer = virtual(file_server, **over)
    assert (answer.status, answer.body["response"]) == (200, "")
    assert answer.body["error"].startswith("No such function name: ") and len(answer.body["error"]) < 100


def test_lone_surrogates_and_nul_are_values(file_server: Server) -> None:
    for raw in (r"\ud800", r"\u0000", r"\udc00\ud83d"):
        for body in (f'{{"city": "{raw}"}}', json.dumps(f'{{"city": "{raw}"}}')):
            text = json.dumps(call(api_name="shape")).replace('{"city": "Oslo"}', body)
            answer = send(file_server, "/virtual", text.encode())
            assert answer.status == 200 and answer.body["error"] == ""
            answer.body["response"]["city"].encode()


def test_deep_arguments_are_refused(file_server: Server) -> None:
    deep = json.dumps(call()).replace('"Oslo"', "[" * 200 + "]" * 200)
    assert send(file_server, "/virtual", deep.encode()).status == 422


def test_other_methods_and_routes(file_server: Server) -> None:
    assert_error(send(file_server, "/virtual", None), 405, "HTTP_405")
    assert send(file_server, "/", None).status == send(file_server, "/virtual/x", b"{}").status == 404
    assert send(file_server, "/virtual", b"{}", Origin="http://example.org").status == 403


def test_the_token_guards_the_route(guarded_server: Server) -> None:
    body = json.dumps(
        call(category="Weather", tool_name="Sky Watch", api_name="Find city", tool_input={"city_name": "Aldermere"})
    ).encode()
    for headers in ({}, {"Authorization": "Bearer wrong-token-0123456789"}):
        assert_error(send(guarded_server, "/virtual", body, **headers), 401, "UNAUTHORIZED")
    answer = send(guarded_server, "/virtual", body, Authorization=f"Bearer {TOKEN}")
    assert answer.status == 200 and answer.body["response"]["city_id"].startswith("ci-")


async def test_search_r1_needs_no_key_and_has_its_own_sentences(bench: Bench) -> None:
    route = Virtual(Answerer(bench.answerer.library, dialect="search-r1"))

    async def error(**over: Any) -> str:
        body = call(**over)
        del body["toolbench_key"]
        return (await route.answer(SearchBody.model_validate(body))).error

    assert await error() == ""
    assert (await error(api_name="nowhere")).startswith("Cannot match API name: 'nowhere'. Available APIs (first 5): [")
    assert await error(tool_name="nowhere") == "Cannot find tool definition file for: nowhere"
    assert await error(api_name="only_documented") == "The API call failed. Please try again later."
