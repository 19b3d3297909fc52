from __future__ import annotations

import pytest

from envs.toolbench.documents import (
    FINISH_SCHEMA,
    change_name,
    function_schema,
    plain_name,
    requested_name,
    standardize,
    standardize_category,
)
from tests.envs.toolbench.builders import api, parameter


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Kick.com API | Kick API", "kick_com_api_kick_api"),
        ("  Songkick concert ", "songkick_concert"),
        ("13F-918", "get_13f_918"),
        ("天气 API", "天气_api"),
        ("a^b", "a^b"),
        ("../../etc/passwd", "etc_passwd"),
        ("___", ""),
        ("", ""),
        ("a\x00b\ud800c", "a_b_c"),
    ],
)
def test_names_are_standardised(text: str, name: str) -> None:
    assert standardize(text) == name


def test_reserved_names_get_a_prefix() -> None:
    reserved = ["from", "class", "return", "false", "true", "id", "and"]
    assert [change_name(name) for name in reserved] == [f"is_{name}" for name in reserved]
    assert change_name("ids") == "ids"


@pytest.mark.parametrize(
    ("category", "folder"),
    [
        ("News, Media", "News_Media"),
        ("Artificial Intelligence/Machine Learning", "Artificial_Intelligence_Machine_Learning"),
        ("a, , b", "a__b"),
        ("..", ".."),
    ],
)
def test_categories_are_folders(category: str, folder: str) -> None:
    assert standardize_category(category) == folder


def test_requests_name_apis_with_and_without_endings() -> None:
    wanted = plain_name("Data", "TheClique", "Transfermarkt search")
    assert wanted == ("Data", "theclique", "transfermarkt_search")
    for tool in ("TheClique", "theclique", "theclique_for_Data"):
        for name in ("Transfermarkt search", "transfermarkt_search", "transfermarkt_search_for_theclique"):
            assert requested_name("Data", tool, name) == wanted
    assert requested_name("Data", "theclique", "id_for_theclique").api == "is_id"
    assert requested_name("Data", "theclique", "tunefind_for_details").api == "tunefind_for_details"


@pytest.mark.parametrize("category", ["..", ".", "", "a/b", "a\\b", "a\x00", "%2e%2e", "a" * 300, "a.b"])
def test_unsafe_categories_are_no_files(category: str) -> None:
    assert not plain_name("", "tool", "api")._replace(category=category).is_safe
    assert plain_name("Data", "tool", "api").is_safe


def test_names_of_files_are_of_some_text_and_at_most_200_bytes() -> None:
    name = plain_name("Data", "tool", "api")
    assert name._replace(tool="t" * 196).is_safe and not name._replace(tool="t" * 197).is_safe, "after the category"
    assert name._replace(api="a" * 200).is_safe and not name._replace(api="a" * 201).is_safe
    assert not name._replace(api="气" * 67).is_safe, "201 bytes"
    assert not name._replace(tool="").is_safe and not name._replace(api="").is_safe


def test_the_function_form() -> None:
    made = function_schema(
        api(
            api_name="id",
            api_description=f" The id of {'x' * 300}",
            required_parameters=[parameter("Class"), parameter("n", "NUMBER", 5), parameter("at", "DATE (YYYY-MM-DD)")],
            optional_parameters=[parameter("on", "BOOLEAN", False)],
        )
    )
    function = made["function"]
    name = "is_id_for_weather_desk"
    assert (made["type"], function["name"]) == ("function", name)
    start = (
        'This is the subfunction for tool "weather_desk", you can use this tool.The description of this function is: "'
    )
    about = f"The id of {'x' * 300}".replace("id", name)[:256]
    assert function["description"] == f'{start}{about}"'
    parameters = function["parameters"]
    assert (parameters["required"], parameters["optional"]) == (["is_class", "n", "at"], ["on"])
    types = {name: item["type"] for name, item in parameters["properties"].items()}
    assert types == {"is_class": "string", "n": "integer", "at": "string", "on": "boolean"}
    assert parameters["properties"]["n"] == {"type": "integer", "description": "The n.", "example_value": 5}
    assert "example_value" not in parameters["properties"]["is_class"]


def test_long_names_keep_their_last_64_characters() -> None:
    made = function_schema(api(api_name="a" * 80))["function"]["name"]
    assert made == "a" * (64 - len("_for_weather_desk")) + "_for_weather_desk"


def test_finish_has_upstreams_form() -> None:
    function = FINISH_SCHEMA["function"]
    assert function["name"] == "Finish" and function["parameters"]["required"] == ["return_type"]
    properties = function["parameters"]["properties"]
    assert properties["return_type"]["enum"] == ["give_answer", "give_up_and_restart"]
    assert properties["final_answer"]["type"] == "string"
