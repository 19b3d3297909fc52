from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from envs.toolbench.answers import has_template, read_template, simulate
from envs.toolbench.values import canonical
from tests.envs.client import ROOT
from tests.envs.toolbench.builders import api

SHAPE = {
    "name": "str",
    "count": "int",
    "share": "float",
    "open": "bool",
    "gone": "NoneType",
    "none": "empty list",
    "tags": ["list of str with length 8"],
    "pairs": "list of int with length 2",
    "City": "str",
    "rows": [{"id": "str", "deep": {"when_date": "str"}, "_list_length": 27}],
    "empty": {},
}


NO_SHAPES: list[Any] = [None, "", {}, []]


def made(shape: Any = SHAPE, **arguments: Any) -> Any:
    return simulate(api(template_response=shape), arguments, canonical(arguments))


def test_the_shape_is_followed() -> None:
    found = made(city="Oslo")
    types = {name: type(value).__name__ for name, value in found.items()}
    assert types == {
        **{"name": "str", "count": "int", "share": "float", "open": "bool", "gone": "NoneType", "none": "list"},
        **{"tags": "list", "pairs": "list", "City": "str", "rows": "list", "empty": "dict"},
    }
    assert (len(found["tags"]), len(found["pairs"]), len(found["rows"])) == (3, 2, 3)
    assert all(isinstance(number, int) for number in found["pairs"])
    assert found["rows"][0].keys() == {"id", "deep"} and found["none"] == [] and found["empty"] == {}


def test_arguments_are_echoed_and_everything_else_depends_on_all_of_them() -> None:
    assert made(city="Oslo")["City"] == "Oslo"
    assert made(city="Oslo", days=1) == made(city="Oslo", days=1)
    assert made(city="Oslo", days=1) != made(city="Oslo", days=2)
    other = simulate(api(api_name="Other", template_response=SHAPE), {"city": "Oslo"}, canonical({"city": "Oslo"}))
    assert other != made(city="Oslo")


def test_the_order_of_arguments_changes_nothing() -> None:
    assert made(city="Oslo", days=1) == made(days=1, city="Oslo")


def test_values_are_the_same_in_every_process() -> None:
    code = (
        "import json; from tests.envs.toolbench.test_simulator import made; "
        "print(json.dumps([made(city=str(n)) for n in range(20)]))"
    )
    output = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert json.loads(output) == [made(city=str(number)) for number in range(20)]


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ('{"a": "str", "b": {"c": ["int"], "d": "fl', {"a": "str", "b": {"c": ["int"]}}),
        ('{"a": "s,t\\"r", "b', {"a": 's,t"r'}),
        ('[{"a": "int", "_list_length": 2}, {"b"', [{"a": "int", "_list_length": 2}]),
        ('{"a', "str"),
        ("{" * 5000, "str"),
        ("list of str with length 3", "list of str with length 3"),
        ('{"a": "int"}', {"a": "int"}),
    ],
)
def test_a_cut_template_ends_with_its_last_whole_value(text: str, tree: Any) -> None:
    assert read_template(text) == tree


@pytest.mark.parametrize(
    "shape", [{"a": [{"b": [{"c": "str"}] * 3, "_list_length": 10**9}] * 3}, {str(n): "str" for n in range(5000)}]
)
def test_responses_stay_small(shape: Any) -> None:
    assert len(json.dumps(made(shape))) < 10_000


def test_apis_without_a_shape_have_none() -> None:
    assert [has_template(api(template_response=shape)) for shape in NO_SHAPES] == [False] * 4
    assert has_template(api(template_response="str"))
