"""StableToolBench's ``/virtual``, played against a small server of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from envs.wire import StepRequest, ToolCall
from tests.training.rollout.foreign import Asked, Reply, call, http_server, play, say, settings
from training.errors import DataError, EnvironmentFault, EnvironmentFull, EnvironmentProtocolError, TiltyardError
from training.rollout.protocols import check_server
from training.rollout.protocols.virtual import change_name, row_apis, standardize

API = {
    "category_name": "Search",
    "tool_name": "barcode.monster",
    "api_name": "code",
    "api_description": "Returns code information",
    "required_parameters": [{"name": "code", "type": "STRING", "description": "Barcode", "default": "5432"}],
    "optional_parameters": [{"name": "from", "type": "NUMBER", "description": "x" * 400, "default": ""}],
    "method": "GET",
}
ROW = {"query": "What is 543216789?", "api_list": [API], "relevant APIs": [["barcode.monster", "code"]]}


class Virtual:
    """Answers by the documented rules, with a cache of one entry."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def __call__(self, asked: Asked) -> Reply:
        wanted = {"category", "tool_name", "api_name", "tool_input", "strip", "toolbench_key"}
        if (asked.method, asked.path) != ("POST", "/virtual"):
            return Reply(404, b"")
        if set(asked.body) != wanted:
            return Reply(422, {"detail": "missing field"})
        self.asked.append(asked.body)
        try:
            arguments = json.loads(asked.body["tool_input"] or "{}")
        except ValueError:
            return Reply(200, {"error": "Tool input parse error...\n", "response": ""})
        if arguments == {"code": "1"}:
            return Reply(200, {"error": "", "response": {"status": "active", "text": "é" * 2000}})
        return Reply(200, {"error": "Failed to generate fake response", "response": ""})


def test_an_episode_goes_from_the_rows_functions_to_finish() -> None:
    server = Virtual()
    finish = call("Finish", return_type="give_answer", final_answer="42")
    with http_server(server) as url:
        config = settings(url, "virtual", options={"toolbench_key": "k", "observation_chars": 100})
        first, good, bad, unknown, idle, last = play(
            config,
            [
                call("code_for_barcode_monster", code="1"),
                call("code_for_barcode_monster"),
                call("nothing"),
                say("Let me think."),
                finish,
            ],
            ROW,
        )
    assert [m.content for m in first.messages] == ["What is 543216789?"]
    assert first.tools is not None
    assert [tool["function"]["name"] for tool in first.tools] == ["code_for_barcode_monster", "Finish"]
    assert server.asked == [
        {
            "category": "Search",
            "tool_name": "barcode_monster",
            "api_name": "code",
            "tool_input": text,
            "strip": "",
            "toolbench_key": "k",
        }
        for text in ('{"code": "1"}', "{}")
    ]
    shown = good.messages[0].content
    assert shown.startswith('{"error": "", "response": {"status": "active"') and len(shown) == 103
    assert shown.endswith("é...") and good.messages[0].tool_call_id == "c1"
    assert json.loads(bad.messages[0].content)["error"] == "Failed to generate fake response"
    assert json.loads(unknown.messages[0].content) == {"error": "There is no function nothing.", "response": ""}
    assert idle.messages[0].role == "user" and not idle.done
    assert last.done and [seen.reward for seen in (first, good, bad, unknown, idle, last)] == [None] * 6


def test_calls_after_finish_are_not_made() -> None:
    server = Virtual()
    both = [ToolCall(id="1", name="Finish"), ToolCall(id="2", name="code_for_barcode_monster", arguments={"code": "1"})]
    with http_server(server) as url:
        last = play(settings(url, "virtual"), [StepRequest(tool_calls=both)], ROW)[-1]
    assert last.done and server.asked == []


def test_what_could_not_be_read_is_reported_to_the_model() -> None:
    with http_server(Virtual()) as url:
        last = play(settings(url, "virtual"), [StepRequest(message="x", parse_error="bad JSON.")], ROW)[-1]
    assert last.messages[0].content == "Error: bad JSON." and not last.done


def test_functions_are_named_as_toolbench_names_them() -> None:
    assert [standardize(text) for text in ("Barcode.Monster", "3D  Print", "__x__y__", "天气 API")] == [
        "barcode_monster",
        "get_3d_print",
        "x_y",
        "天气_api",
    ]
    assert [change_name(name) for name in ("from", "id", "code")] == ["is_from", "is_id", "code"]
    (api,) = row_apis(ROW)
    assert api.schema["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "Barcode", "example_value": "5432"},
            "is_from": {"type": "integer", "description": "x" * 256},
        },
        "required": ["code"],
        "optional": ["is_from"],
    }
    (long,) = row_apis({"extra_info": {"api_list": [{**API, "api_name": "a" * 80}]}})
    assert len(long.function) == 64 and long.function.endswith("_for_barcode_monster") and long.api == "a" * 80


@pytest.mark.parametrize("row", [{}, {"api_list": []}, {"api_list": "x"}, {"api_list": [3]}, {"api_list": [{}]}])
def test_a_row_without_apis_says_so(row: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="api_list"):
        play(settings("http://127.0.0.1:9", "virtual"), [], row)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(500, b"Internal Server Error"), EnvironmentFault),
        (Reply(503, b""), EnvironmentFull),
        (Reply(422, {"detail": []}), EnvironmentProtocolError),
        (Reply(200, []), EnvironmentProtocolError),
        (Reply(200, {"error": 3, "response": ""}), EnvironmentProtocolError),
        (Reply(200, {"error": ""}), EnvironmentProtocolError),
        (Reply(200, b'{"error": "", "response": NaN}'), EnvironmentProtocolError),
        (Reply(200, b'{"error": "", "response": ' + b"[" * 60 + b"]" * 60 + b"}"), EnvironmentProtocolError),
        (Reply(200, b"[" * 100_000), EnvironmentProtocolError),
        (Reply(200, b"\xff"), EnvironmentProtocolError),
    ],
)
def test_a_bad_answer_has_its_typed_error(reply: Reply, expected: type[TiltyardError]) -> None:
    with http_server(lambda asked: reply) as url, pytest.raises(expected):
        play(settings(url, "virtual"), [call("code_for_barcode_monster", code="1")], ROW)


def test_a_server_is_known_by_its_answer_to_an_unreadable_input() -> None:
    server = Virtual()
    with http_server(server) as url:
        assert check_server(settings(url, "virtual")) == ("StableToolBench", None, None, None, None)
    assert server.asked[0]["tool_input"] == "{"
    with http_server(lambda asked: Reply(200, {"hello": 1})) as url, pytest.raises(EnvironmentProtocolError):
        check_server(settings(url, "virtual"))
