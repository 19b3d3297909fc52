"""A tool, its recorded responses and its queries, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from envs.toolbench.documents import Api, ListedApi

DATA_OPTIONS = ("--tools", "{files}/tools", "--cache", "{files}/cache", "--queries", "{files}/queries.json")
LONG_API = "An API whose name is so long that the function's name has no room for it"


def parameter(name: str, kind: str = "STRING", default: Any = "") -> dict[str, Any]:
    return {"name": name, "type": kind, "description": f"The {name}.", "default": default}


def listed(**over: Any) -> dict[str, Any]:
    """An API as a query lists it."""
    values = {
        "category_name": "Data",
        "tool_name": "Weather Desk",
        "api_name": "Forecast",
        "api_description": "The weather of a city.",
        "required_parameters": [parameter("city")],
        "optional_parameters": [parameter("days", "NUMBER", 3), parameter("metric", "BOOLEAN")],
        "method": "GET",
    }
    return {**values, **over}


def api(**over: Any) -> Api:
    return ListedApi.model_validate(listed(**over)).as_api()


APIS = [
    listed(),
    listed(
        api_name="Shape", template_response={"city": "str", "degrees": "int", "parts": ["list of str with length 5"]}
    ),
    listed(api_name="Nothing"),
    listed(api_name=LONG_API, required_parameters=[]),
    listed(api_name="id", required_parameters=[], optional_parameters=[]),
]
RECORDS = {
    "{'city': 'Oslo'}": {"error": "", "response": "{'degrees': 7}"},
    "{'city': 'Oslo', 'days': 2}": {"error": "", "response": {"degrees": [7, 8]}},
    '{"city": "Rome", "where": {"b": 1, "a": [1, {"d": 4, "c": 3}]}}': {"error": "", "response": "nested"},
    "{'city': 'Broken'}": {"error": "Unauthorized error...", "response": ""},
    "__import__('os').system('false')": {"error": "", "response": "never"},
    "{'city': 'Strange'}": {"error": "", "response": "x" * 3000},
}


def write_data(folder: Path) -> Path:
    """Tools, cache and queries in upstream's layout."""
    keep = ("required_parameters", "optional_parameters", "method")
    documents = [
        {"name": item["api_name"], "description": item["api_description"], **{key: item[key] for key in keep}}
        for item in [*APIS, listed(api_name="Only Documented")]
    ]
    tool = {"tool_name": "Weather Desk", "tool_description": "Weather.", "api_list": documents}
    _write(folder / "tools/Data/weather_desk.json", tool)
    _write(folder / "cache/Data/weather_desk_for_Data/forecast.json", RECORDS)
    _write(folder / "cache/Data/weather_desk_for_Data/is_id.json", {"{}": {"error": "", "response": "an id"}})
    big = {f"{{'city': '{number}'}}": {"error": "", "response": "y" * 1000} for number in range(300)}
    _write(folder / "cache/Data/weather_desk_for_Data/nothing.json", big)
    _write(folder / "cache/secret.json", {"{}": {"error": "", "response": "secret"}})
    queries = [
        {
            "query_id": 7,
            "query": "How warm is Oslo?",
            "api_list": APIS,
            "relevant APIs": [["Weather Desk", "Forecast"]],
        },
        {"query_id": 9, "query": "And Rome?", "api_list": APIS[:1]},
    ]
    _write(folder / "queries.json", queries)
    _write(folder / "ids.json", {"9": 0})
    return folder


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
