from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from envs.tools.tools import MAX_ARGUMENT_LENGTH, TOOL_NAMES, Context, run_tool, tool_schemas

NOW = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)


def call(name: str, language: str = "en", **arguments: Any) -> tuple[str, bool]:
    return tuple(run_tool(name, arguments, Context(language, NOW)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("city", "text"),
    [
        ("北京", "北京在今天的天气：温度15°C，天气晴朗，湿度45%"),
        ("上海", "上海在今天的天气：温度18°C，天气多云，湿度60%"),
        ("广州", "广州在今天的天气：温度25°C，天气小雨，湿度75%"),
        ("深圳", "深圳在今天的天气：温度26°C，天气晴朗，湿度55%"),
        ("杭州", "杭州在今天的天气：温度20°C，天气晴朗，湿度50%"),
    ],
)
def test_weather_follows_the_table_and_its_default(city: str, text: str) -> None:
    assert call("weather_query", "zh", city=city) == (text, True)


def test_weather_knows_cities_in_both_languages() -> None:
    assert call("weather_query", city="Beijing", date="2025-06-01") == (
        "Weather in Beijing on 2025-06-01: 15°C, sunny, humidity 45%",
        True,
    )
    assert "15°C" in call("weather_query", "zh", city="beijing")[0]


@pytest.mark.parametrize(
    ("name", "arguments", "en", "zh"),
    [
        ("nope", {}, "Error: unknown tool: nope", "错误: 未知工具: nope"),
        ("calculator", {}, "Error: missing expression argument", "错误: 缺少表达式参数"),
        ("calculator", {"expression": " "}, "Error: missing expression argument", "错误: 缺少表达式参数"),
        (
            "calculator",
            {"expression": "1/0"},
            "Error: cannot calculate: division by zero",
            "错误: 计算错误: 除数不能为零",
        ),
        ("weather_query", {}, "Error: missing city argument", "错误: 缺少城市参数"),
        ("search", {"max_results": 3}, "Error: missing query argument", "错误: 缺少查询参数"),
        (
            "search",
            {"query": "x", "max_results": "x"},
            "Error: max_results must be a whole number",
            "错误: max_results 必须是整数",
        ),
        ("get_current_time", {"timezone": "X/Y"}, "Error: time zone: X/Y is not known", "错误: 时区错误: 未知时区 X/Y"),
        ("get_current_time", {"timezone": "../../etc/passwd"}, "Error: time zone: ../../etc/passwd is not known", None),
        ("get_current_time", {"timezone": 8}, "Error: time zone: must be text", "错误: 时区错误: 必须是文本"),
    ],
)
def test_failed_call_says_why_in_the_language_of_the_task(
    name: str, arguments: dict[str, Any], en: str, zh: str | None
) -> None:
    assert call(name, **arguments) == (en, False)
    if zh is not None:
        assert call(name, "zh", **arguments) == (zh, False)


@pytest.mark.parametrize(
    "value", [[], {}, [["x"] * 9], True, float("nan"), float("inf"), 10**200, -1, "\ufffd", "\x00"]
)
@pytest.mark.parametrize("name", TOOL_NAMES)
def test_any_argument_gets_an_answer(name: str, value: Any) -> None:
    for key in ("expression", "city", "date", "query", "max_results", "timezone"):
        arguments = {"expression": "1", "city": "x", "query": "x", key: value}
        text, ok = call(name, **arguments)
        assert text.startswith("Error: ") is not ok


@pytest.mark.parametrize("name", TOOL_NAMES)
def test_argument_of_ten_megabytes_is_refused(name: str) -> None:
    text, ok = call(name, expression="1" * 10_000_000, city="1" * 10_000_000, query="x", timezone="UTC")
    assert (text, ok) == (f"Error: an argument is longer than {MAX_ARGUMENT_LENGTH} characters", False)


def test_an_argument_may_have_4096_characters() -> None:
    assert call("search", query="x" * 4096)[1] and not call("search", query="x" * 4097)[1]


def test_time_is_the_simulated_one_in_the_named_zone() -> None:
    assert call("get_current_time", timezone="Asia/Tokyo") == ("2025-03-04 14:06:07 JST", True)
    assert call("get_current_time", timezone="Tokyo") == call("get_current_time", timezone="Asia/Tokyo")
    assert call("get_current_time") == ("2025-03-04 05:06:07 UTC", True)
    assert call("get_current_time", "zh") == ("2025-03-04 13:06:07 CST", True)


def test_search_ranks_by_shared_words() -> None:
    assert call("search", query="GRPO") == ("Found 1 results\n1. GRPO was introduced in 2024.", True)
    assert call("search", query="atomic number iron")[0].splitlines()[1] == "1. Iron has atomic number 26."
    assert call("search", "zh", query="搜索一下长江的资料")[0].startswith("找到 1 条相关结果\n1. 长江长 6300")
    assert call("search", query="zzz") == ("Found 0 results", True)
    assert len(call("search", query="born planet number km long", max_results=2)[0].splitlines()) == 3
    assert len(call("search", query="born planet number km long")[0].splitlines()) == 6


@pytest.mark.parametrize("language", ["en", "zh"])
def test_schemas_have_the_openai_function_form(language: str) -> None:
    schemas = tool_schemas(language)  # type: ignore[arg-type]
    assert [schema["function"]["name"] for schema in schemas] == list(TOOL_NAMES)
    for schema in schemas:
        assert schema["type"] == "function"
        parameters = schema["function"]["parameters"]
        assert set(parameters["required"]) <= set(parameters["properties"])
