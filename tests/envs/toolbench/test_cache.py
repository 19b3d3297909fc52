from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from envs.toolbench.documents import ApiName, plain_name
from envs.toolbench.library import NOTHING, ResponseCache, find_response, indexed
from envs.toolbench.values import canonical

FORECAST = plain_name("Data", "Weather Desk", "Forecast")


def find(cache: ResponseCache, name: ApiName, **arguments: object) -> object:
    responses = cache.quick(name)
    assert responses is not None
    return find_response(responses, arguments, canonical(arguments))


def test_both_kinds_of_key_are_found_in_any_order(files: Path) -> None:
    cache = ResponseCache(files / "cache")
    assert find(cache, FORECAST, city="Oslo") == {"error": "", "response": "{'degrees': 7}"}
    assert find(cache, FORECAST, days=2, city="Oslo") == {"error": "", "response": {"degrees": [7, 8]}}
    where = {"a": [1, {"c": 3, "d": 4}], "b": 1}
    assert find(cache, FORECAST, where=where, city="Rome") == {"error": "", "response": "nested"}
    assert find(cache, FORECAST, city="Paris") is None
    assert find(cache, FORECAST) is None


def test_an_exact_key_goes_before_another_order() -> None:
    responses = indexed({"{'a': 1, 'b': 2}": "first", "{'b': 2, 'a': 1}": "second"})
    for arguments, wanted in (({"a": 1, "b": 2}, "first"), ({"b": 2, "a": 1}, "second")):
        assert find_response(responses, arguments, canonical(arguments)) == wanted


@pytest.mark.parametrize(
    "name",
    [
        *(ApiName("..", "secret", "secret"), ApiName("Data", "", "secret"), ApiName("Data/..", "x", "secret")),
        *(ApiName("Data", "weather_desk", "x" * 5000), ApiName("Da\x00ta", "a", "b"), ApiName("Nowhere", "a", "b")),
    ],
)
def test_names_without_a_file_have_no_responses(files: Path, name: ApiName) -> None:
    assert ResponseCache(files / "cache").quick(name) == NOTHING


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "cache/Data/tool_for_Data"
    folder.mkdir(parents=True)
    secret = tmp_path / "secret.json"
    secret.write_text('{"{}": {"error": "", "response": "secret"}}')
    (folder / "leak.json").symlink_to(secret)
    (folder / "loop.json").symlink_to(folder / "loop.json")
    cache = ResponseCache(tmp_path / "cache")
    for api in ("leak", "loop"):
        assert cache.quick(ApiName("Data", "tool", api)) == NOTHING


@pytest.mark.parametrize("text", ["", "[]", "5", "{", "[" * 100_000, "\x00"])
def test_a_broken_file_has_no_responses(tmp_path: Path, text: str) -> None:
    path = tmp_path / "Data/tool_for_Data/api.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert ResponseCache(tmp_path).quick(ApiName("Data", "tool", "api")) == NOTHING


def test_large_files_are_read_outside_the_event_loop(files: Path) -> None:
    cache, name = ResponseCache(files / "cache"), plain_name("Data", "Weather Desk", "Nothing")
    assert cache.quick(name) is None
    loaded = asyncio.run(cache.load(name))
    assert find_response(loaded, {"city": "17"}, canonical({"city": "17"}))["response"] == "y" * 1000
    assert cache.quick(name) is loaded


def test_memory_is_bounded_and_files_are_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "Data/tool_for_Data"
    folder.mkdir(parents=True)
    for number in range(10):
        (folder / f"api{number}.json").write_text(json.dumps({"{}": {"error": "", "response": "x" * 3000}}))
    cache = ResponseCache(tmp_path, max_kept_bytes=10_000)
    for number in (*range(10), *range(10)):
        assert find(cache, ApiName("Data", "tool", f"api{number}")) is not None
    for number in range(1000):
        cache.quick(ApiName("Data", "tool", f"missing{number}"))
    assert len(cache._kept) < 10 and cache._kept_bytes <= 10_000
