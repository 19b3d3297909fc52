from __future__ import annotations

import json
from typing import Any

import pytest

from envs.base import EnvironmentRefusal
from envs.bfcl.application import gold_steps, play
from envs.bfcl.calls import tool_schemas
from envs.bfcl.package import MODULES, documents, entries, methods_of
from envs.bfcl.server import BfclEnvironment
from envs.bfcl.tasks import REVEAL, read_row, resolve


def verl_row(name: str) -> dict[str, Any]:
    """An entry as EnvTuning's parquet files carry it."""
    entry = entries()[name]
    task = resolve(read_row({"id": name}), 0)
    kwargs = {
        "name": "multi_turn_tool_call",
        "id": name,
        "initial_config": json.dumps(entry["initial_config"]),
        "involved_classes": entry["involved_classes"],
        "ground_truth": entry["ground_truth"],
        "processed_question": [turn.text for turn in task.turns[1:]],
        "question": entry["question"],
    }
    extra = {"split": "train", "index": name, "original_id": name, "interaction_kwargs": kwargs}
    return {"data_source": name.rsplit("_", 1)[0], "prompt": [{"role": "user", "content": "x"}], "extra_info": extra}


@pytest.mark.parametrize("name", ["multi_turn_base_46", "multi_turn_miss_func_0", "multi_turn_long_context_7"])
def test_every_form_of_a_row_is_the_same_task(name: str) -> None:
    wanted = resolve(read_row({"id": name}), 0)
    row = verl_row(name)
    assert resolve(read_row(row), 0) == wanted
    assert resolve(read_row(row["extra_info"]["interaction_kwargs"]), 0) == wanted
    assert resolve(read_row(entries()[name]), 0) == wanted
    assert play(row, gold_steps(wanted))[-1].reward == 1.0


def test_a_row_plays_twice_because_its_questions_are_not_used_up() -> None:
    row = verl_row("multi_turn_miss_func_0")
    before = json.dumps(row)
    for _ in range(2):
        assert play(row, gold_steps(resolve(read_row(row), 0)))[-1].reward == 1.0
    assert json.dumps(row) == before


def test_an_own_entry_needs_nothing_of_the_data() -> None:
    row = {
        "id": "mine",
        "initial_config": {},
        "involved_classes": ["MathAPI"],
        "question": [[{"role": "user", "content": "What is 2 + 3?"}]],
        "ground_truth": [["add(2, 3)"]],
    }
    assert play(row, gold_steps(resolve(read_row(row), 0)))[-1].reward == 1.0


def test_messages_of_the_row_are_the_prompt() -> None:
    messages = [{"role": "system", "content": "Mine."}, {"role": "user", "content": "Go."}]
    first = BfclEnvironment().reset({"id": "multi_turn_base_0", "messages": messages}, 0, "e")
    assert [message.content for message in first.messages] == ["Mine.", "Go."]


def _changed(**kwargs: Any) -> dict[str, Any]:
    row = verl_row("multi_turn_miss_func_0")
    row["extra_info"]["interaction_kwargs"].update(kwargs)
    return row


NOT_PLAYED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown id": ({"id": "multi_turn_base_999"}, "has no entry"),
    "other version": ({"id": "multi_turn_base_0", "bfcl_version": "v4"}, "the two do not mix"),
    "garbage version": ({"id": "multi_turn_base_0", "bfcl_version": "x" * 999}, "the two do not mix"),
    "other documents": (
        {"id": "multi_turn_base_0", "docs": [{"name": "ls", "description": "new"}]},
        "versions do not mix",
    ),
    "no question": ({"id": "x", "initial_config": {}, "involved_classes": ["MathAPI"]}, "it has no ground_truth"),
    "number for an id": ({"id": 5}, "id: "),
    "classes are text": ({"id": "x", "involved_classes": "MathAPI"}, "involved_classes: "),
}
CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "other scenario": ({"initial_config": "{}"}, "say so with"),
    "other ground truth": ({"ground_truth": [["ls()"]] * 5}, "say so with"),
    "config is no JSON": ({"initial_config": "{", "bfcl_version": "v3"}, "not JSON"),
    "config is a list": ({"initial_config": "[]", "bfcl_version": "v3"}, "not an object"),
    "config does not load": (
        {"initial_config": '{"GorillaFileSystem": {"root": 5}}', "bfcl_version": "v3"},
        "does not load",
    ),
    "unknown class": ({"involved_classes": ["os"], "bfcl_version": "v3"}, "involved_classes names 'os'"),
    "no class": ({"involved_classes": [], "bfcl_version": "v3"}, "involves no class"),
    "too few turns": ({"processed_question": [], "bfcl_version": "v3"}, "1 turns and ground truth for 5"),
    "code as ground truth": ({"ground_truth": [["().__class__()"]] * 5, "bfcl_version": "v3"}, "plain name"),
    "nested call": ({"ground_truth": [["cd(folder=ls())"]] * 5, "bfcl_version": "v3"}, "not a literal"),
    "unpacked arguments": ({"ground_truth": [["cd(**{})"]] * 5, "bfcl_version": "v3"}, "unpacks"),
    "two statements": ({"ground_truth": [["ls(); ls()"]] * 5, "bfcl_version": "v3"}, "is not a call"),
    "reveals nothing known": (
        {"processed_question": ["a", "b", f'[{{"name": "rm -rf"}}]\n{REVEAL}', "c"], "bfcl_version": "v3"},
        "do not have",
    ),
    "reveals no documents": (
        {"processed_question": ["a", "b", f"[{{\n{REVEAL}", "c"], "bfcl_version": "v3"},
        "does not carry",
    ),
}


@pytest.mark.parametrize("name", [*NOT_PLAYED, *CHANGED])
def test_a_task_that_cannot_be_played_is_refused_with_a_sentence(name: str) -> None:
    row, sentence = NOT_PLAYED[name] if name in NOT_PLAYED else (_changed(**CHANGED[name][0]), CHANGED[name][1])
    with pytest.raises(EnvironmentRefusal, match=sentence) as refused:
        BfclEnvironment().reset(row, 0, "e")
    assert len(str(refused.value)) < 300


def test_a_tag_that_agrees_lets_a_changed_row_play() -> None:
    row = _changed(ground_truth=[["ls()"]] * 5, bfcl_version="3")
    assert resolve(read_row(row), 0).turns[0].truth[0].name == "ls"


def test_all_129_documented_functions_can_be_called() -> None:
    assert sum(len(methods_of(name)) for name in MODULES) == 129
    assert all(methods_of(name) == set(documents(name)) for name in MODULES)


def test_schemas_have_the_openai_function_form_and_json_schemas_types() -> None:
    for name in MODULES:
        for schema in tool_schemas(documents(name).values()):
            assert schema["type"] == "function"
            parameters = schema["function"]["parameters"]
            assert set(parameters["required"]) <= set(parameters["properties"])
            assert _types(parameters) <= {"object", "number", "string", "integer", "array", "boolean"}
    assert documents("MathAPI")["add"]["parameters"]["type"] == "dict"


def _types(schema: dict[str, Any]) -> set[str]:
    found = {schema["type"]}
    for child in [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]:
        found |= _types(child)
    return found
