from __future__ import annotations

from typing import Any

import pytest

from envs.toolbench.answers import Answer, Answerer
from envs.toolbench.bench import Bench
from envs.toolbench.documents import Api, plain_name
from tests.envs.toolbench.builders import LONG_API

WHERE = "Function executing from toolenv.tools.Data.weather_desk.api import {api} error...\n{api}() "


def api_of(bench: Bench, name: str) -> Api:
    found = bench.answerer.library.find(plain_name("Data", "Weather Desk", name))
    assert found is not None
    return found


def ask(bench: Bench, name: str, **arguments: Any) -> Answer:
    api = api_of(bench, name)
    answer = bench.answerer.quick(api.name, api, arguments)
    assert answer is not None
    return answer


def test_records_go_first_and_their_errors_have_upstreams_status(bench: Bench) -> None:
    assert ask(bench, "Forecast", city="Oslo") == Answer({"error": "", "response": "{'degrees': 7}"}, "cache", 0)
    refused = ask(bench, "Forecast", city="Broken")
    assert (refused.error, refused.source, refused.status) == ("Unauthorized error...", "cache", 7)
    unknown_argument = ask(bench, "Forecast", city="Rome", where={"b": 1, "a": [1, {"c": 3, "d": 4}]})
    assert unknown_argument.body["response"] == "nested"


@pytest.mark.parametrize("days", [2, "2", " 2 "])
def test_arguments_are_read_in_their_declared_type(bench: Bench, days: Any) -> None:
    assert ask(bench, "Forecast", city="Oslo", days=days).body["response"] == {"degrees": [7, 8]}


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({}, "missing 1 required positional argument: 'city'"),
        ({"city": "A", "town": 1}, "got an unexpected keyword argument 'town'"),
        ({"city": ["A"]}, "argument 'city' must be str, not list"),
        ({"city": None}, "argument 'city' must be str, not NoneType"),
        ({"city": "A", "days": "many"}, "argument 'days' must be number, not str"),
        ({"city": "A", "days": True}, "argument 'days' must be number, not bool"),
        ({"city": "A", "metric": 1}, "argument 'metric' must be bool, not int"),
    ],
)
def test_bad_arguments_get_the_error_of_upstreams_tools(bench: Bench, arguments: dict[str, Any], fault: str) -> None:
    answer = ask(bench, "Shape", **arguments)
    assert (answer.error, answer.source, answer.status) == (WHERE.format(api="shape") + fault, "error", 2)
    assert answer.body["response"] == ""


def test_shapes_are_simulated_and_the_rest_is_an_error(bench: Bench) -> None:
    simulated = ask(bench, "Shape", city="Oslo", metric="true", days="2.5")
    assert simulated.source == "simulator" and simulated.body["response"]["city"] == "Oslo"
    nothing = ask(bench, LONG_API)
    assert (nothing.error, nothing.source, nothing.status) == ("Failed to generate fake response", "error", 12)
    other = Answerer(bench.answerer.library, dialect="search-r1")
    api = api_of(bench, "Only Documented")
    failed = other.quick(api.name, api, {"city": "Oslo"})
    assert failed is not None and failed.error == "The API call failed. Please try again later."


@pytest.mark.parametrize(
    ("dialect", "tool", "error"),
    [
        ("stabletoolbench", "weather_desk", "No such function name: nowhere"),
        ("stabletoolbench", "other", "No such function name: nowhere"),
        (
            "search-r1",
            "weather_desk",
            "Cannot match API name: 'nowhere'. Available APIs (first 5): ['forecast', 'shape', 'nothing', "
            "'an_api_whose_name_is_so_long_that_the_function_s_name_has_no_room_for_it', 'is_id']",
        ),
        ("search-r1", "other", "Cannot find tool definition file for: other"),
    ],
)
def test_unknown_names_have_the_dialects_sentences(bench: Bench, dialect: Any, tool: str, error: str) -> None:
    answerer = Answerer(bench.answerer.library, dialect=dialect)
    answer = answerer.quick(plain_name("Data", tool, "nowhere"), None, {})
    assert answer is not None
    assert (answer.error, answer.status, answer.body["response"]) == (error, 1, "")


def test_our_own_world_has_nothing_that_is_not_recorded(world: Bench) -> None:
    library = world.answerer.library
    api = library.find(plain_name("Weather", "Sky Watch", "Find city"))
    assert api is not None
    found = world.answerer.quick(api.name, api, {"city_name": "Aldermere"})
    assert found is not None and found.source == "cache" and found.body["response"]["city_id"].startswith("ci-")
    for name in ("Oslo", "aldermere", ""):
        missing = world.answerer.quick(api.name, api, {"city_name": name})
        assert missing is not None and (missing.error, missing.status) == ("Message error...", 11)


def test_listed_apis_get_the_description_of_their_tool(bench: Bench) -> None:
    shape = api_of(bench, "Shape")
    assert shape.tool_description == ""
    described = bench.answerer.library.described(shape)
    assert (described.tool_description, described.document) == ("Weather.", shape.document)


def test_a_cut_function_name_is_found(bench: Bench) -> None:
    api = api_of(bench, LONG_API)
    cut, tool = api.name.function.rsplit("_for_", 1)
    assert len(api.name.function) == 64 and cut != api.name.api
    assert bench.answerer.library.find(plain_name("Data", tool, cut)) == api
    assert bench.answerer.library.find(plain_name("Data", tool, "room_for_it")) is None
