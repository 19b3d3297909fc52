from __future__ import annotations

import pytest

from envs.toolbench.values import ValueFault, canonical, load_json, load_leading_json, parse_key
from tests.growth import assert_quick


@pytest.mark.parametrize(
    "keys",
    [
        ("{'b': 1, 'a': 2}", "{'a': 2, 'b': 1}", '{"a": 2, "b": 1}', '{"b":1,"a":2}'),
        ("{'a': {'y': [1, (2, 3)], 'x': None}}", '{"a": {"x": null, "y": [1, [2, 3]]}}'),
        ("{'a': True, 'b': 'it\\'s'}", '{"b": "it\'s", "a": true}'),
        ("{}", "{ }"),
    ],
)
def test_keys_of_the_same_arguments_are_equal(keys: tuple[str, ...]) -> None:
    assert len({canonical(parse_key(key)) for key in keys}) == 1


def test_different_arguments_differ() -> None:
    texts = {canonical(value) for value in ({"a": 1}, {"a": "1"}, {"a": True}, {"a": [1]}, {"a": None}, {})}
    assert len(texts) == 6


def test_arguments_may_be_65536_characters_long() -> None:
    assert len(canonical("x" * 65_534)) == 65_536
    for wrong in ("x" * 65_535, float("nan"), {1, 2}):
        with pytest.raises(ValueFault):
            canonical(wrong)


@pytest.mark.parametrize(
    "key",
    [
        *("", "5", "[1]", "{", "__import__('os').system('false')", "{'a': open('x')}", "{'a': 1} + 1", "\x00"),
        *("{'a': " + "[" * 60 + "]" * 60 + "}", "(" * 100_000, "{'a': '" + "x" * 70_000 + "'}", "{'a': nan}"),
        *("-" * 60_000 + "1", "{'a': " + "1+" * 30_000 + "1}", '"\\"' * 20_000),
        *('{"a": NaN}', '{"a": Infinity}', "{'a': " + "9" * 5000 + "}"),
    ],
)
def test_keys_that_are_no_arguments_are_refused(key: str) -> None:
    def refuse() -> None:
        with pytest.raises(ValueFault):
            parse_key(key)

    assert_quick(refuse, 0.25)


@pytest.mark.parametrize("text", ["", "{", "NaN", "[-Infinity]", '{"a": 1} x', "[" * 100_000, "9" * 5000, "'a'"])
def test_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueFault):
        load_json(text)


def test_what_models_write_is_read() -> None:
    assert load_json('{"a": "line\nbreak"}') == {"a": "line\nbreak"}
    assert load_json(r'"\ud800"') == "\ufffd"
    assert load_json(r'{"\ud83d\ude00": ["\udc00"]}') == {"\U0001f600": ["\ufffd"]}
    assert load_leading_json('{"a": "}"} Observation: {"b": 1}') == {"a": "}"}
    assert load_json(str([[]] * 60)) == [[]] * 60
    assert load_json('["' + "[{(" * 100 + r"\"" + "[" * 100 + '"]') == ["[{(" * 100 + '"' + "[" * 100]
    assert parse_key("{'a': '" + "[{(" * 100 + "'}") == {"a": "[{(" * 100}


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": float("inf")}, {"a": "x" * 70_000}, {"a": object()}])
def test_arguments_that_cannot_be_compared_are_refused(value: object) -> None:
    with pytest.raises(ValueFault):
        canonical(value)
