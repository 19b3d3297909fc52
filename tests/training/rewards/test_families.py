"""What every component promises: examples, bounds, purity, and calm before hostile episodes."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.wire import Message, ToolCall
from training.config import RewardComponent
from training.errors import RewardFault
from training.rewards.base import Component, Episode, Example
from training.rewards.bfcl import STAGE_1_SPEC, STAGE_3_SPEC
from training.rewards.helloagents import COMBINED_SPEC
from training.rewards.reference import reference
from training.rewards.scoring import COMPONENTS, FAMILIES, score_episode, validate_components
from training.rewards.toolbench import LATEST_SPEC, MIDDLE_SPEC, SEED_SPEC

from .episodes import episode, says, tool, user

ROOT = Path(__file__).resolve().parents[3]
PURE = [component for component in COMPONENTS.values() if not component.outside]


@pytest.mark.parametrize("component", COMPONENTS.values(), ids=lambda item: item.name)
def test_examples_come_out_as_they_say(component: Component) -> None:
    assert component.validate() == []
    assert component.source and component.formula and component.title and component.help.endswith(".")
    assert component.examples or component.outside
    defaults = component.params()
    assert all(text.endswith(".") for text in defaults.problems())
    for example in component.examples:
        if example.expected is not None and not example.params:
            assert component.low <= example.expected <= component.high


def test_an_example_that_is_wrong_is_named() -> None:
    wrong = Component("odd", "Odd", "Odd.", lambda *_: 0.5, examples=(Example("half", episode("q"), 0.6),))
    assert wrong.validate() == ["`odd`, half: 0.5 instead of 0.6."]
    missing = Component("odd", "Odd", "Odd.", lambda *_: 0.0, examples=(Example("none", episode("q"), None),))
    assert missing.validate() == ["`odd`, none: 0.0 instead of None."]


def test_names_and_titles_are_used_once() -> None:
    everything = [component for family in FAMILIES.values() for component in family]
    assert len(everything) == len(COMPONENTS) == len({component.title for component in everything})
    assert {name for name, component in COMPONENTS.items() if component.outside} == {
        "judge",
        "toolbench_pass",
        "reward_model",
        "custom_python",
    }


@pytest.mark.parametrize("spec", [SEED_SPEC, MIDDLE_SPEC, LATEST_SPEC, STAGE_1_SPEC, STAGE_3_SPEC, COMBINED_SPEC])
def test_the_published_specs_can_be_scored_with(spec: list[RewardComponent]) -> None:
    assert validate_components(spec) == []


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "rewards.md").read_text(encoding="utf-8") == reference()


def test_what_has_to_be_filled_in_is_reported() -> None:
    problems = validate_components(
        [RewardComponent(name=name, weight=1) for name in ("judge", "regex_match", "reward_model", "custom_python")]
    )
    assert problems == [
        "`judge`: The judge has no model.",
        "`judge`: The judge has no address.",
        "`regex_match`: There is no pattern.",
        "`reward_model`: The reward model has no folder.",
        "`custom_python`: There is no code.",
    ]
    far = RewardComponent(
        name="judge", weight=1, params={"model": "m", "url": "ftp://example.org", "lowest": 3, "highest": 3}
    )
    assert [text.split(":")[1].strip() for text in validate_components([far])] == [
        "The judge has no usable address",
        "The judge's highest score must be above the lowest.",
    ]


DEEP = "[" * 100_000 + "]" * 100_000
HOSTILE = {
    "1 MB": "Thought: a\nAction: " + "x" * 1_000_000,
    "1 MB of words": "词 word " * 125_000,
    "1 MB of braces": 'Thought: a\nAction: b\nAction Input: {"a": ' * 20_000,
    "deep JSON": f"Thought: a\nAction: b\nAction Input: {DEEP}",
    "deep answer": DEEP,
    "NUL": "Final Answer: \x0042\x00",
    "RTL": "\u202eFinal Answer: 42\u202c \u200f\u0627\u0644\u062c\u0648\u0627\u0628",
    "surrogate": "Final Answer: \ud800 42",
    "huge number": "Final Answer: " + "9" * 400_000,
    "many numbers": "1,2,3,4," * 100_000,
    "infinite": "Final Answer: inf nan 1e999 -1e999",
    "digits": "１２３ ٤٢ ²³ Final Answer: ４２",
    "newlines": "\n" * 500_000,
    "steps": "Step 1\n第 一 步\n1.\n" * 50_000,
    "tags": "<think>" * 100_000 + "<tool_call>" * 50_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_texts_are_scored_or_missing_and_never_nan(text: str) -> None:
    row = {"answer": "42", "ground_truth": "42"}
    talk = episode("q", says(text), user(text), says("", "a"), tool(text, "a"), says(text), row=row)
    params: dict[str, dict[str, Any]] = {
        "regex_match": {"pattern": r"(\w+\s?)+answer"},
        "json_schema_match": {"json_schema": '{"items": {"$ref": "#"}}'},
    }
    before = copy.deepcopy(talk)
    for component in PURE:
        chosen = RewardComponent(name=component.name, weight=1, params=params.get(component.name, {}))
        try:
            value = score_episode(talk, [chosen]).total
        except RewardFault:
            continue
        except Exception as exc:
            assert type(exc).__name__ == "RewardTimeout", (component.name, exc)
            continue
        assert math.isfinite(value), component.name
        assert component.low - 1e-9 <= value <= component.high + 1e-9, component.name
    assert talk == before


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
_snippets = st.sampled_from(
    [
        "Thought: a\nAction: b\nAction Input: {}",
        'Thought: a\nAction: Finish\nAction Input: {"return_type": 3}',
        "Error: x",
        '{"error": "x", "response": ""}',
        'Execution results:["Error during execution: x"]',
        "Final Answer: 1e5",
        "#### -3",
        "Thank you for shopping with us! [SEP] Your score (min 0.0, max 1.0) [SEP] 0.5",
        "<think>a</think>",
        "你好 hello",
    ]
)
_messages = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["system", "user", "assistant", "tool"]),
        content=st.text(max_size=60) | _snippets,
        tool_calls=st.none()
        | st.lists(
            st.builds(
                ToolCall,
                id=st.sampled_from("abc"),
                name=st.sampled_from(["Finish", "ls", ""]),
                arguments=st.dictionaries(st.sampled_from(["return_type", "x"]), _json, max_size=2),
            ),
            max_size=3,
        ),
        tool_call_id=st.none() | st.sampled_from(["", "a", "b"]),
    ),
    max_size=8,
)
_rows = st.dictionaries(
    st.sampled_from(["answer", "ground_truth", "reward_model", "extra_info", "user_turn_rewards"]),
    _json | st.just({"ground_truth": "5", "answer": [1, "x"]}),
    max_size=4,
)
_parts = st.dictionaries(
    st.sampled_from(["r_type", "r_att", "score", "task_success", "format_reward", "is_tool_call", "tool_call_reward"]),
    st.floats(0, 1),
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(
    _messages,
    st.integers(0, 9),
    _rows,
    _parts,
    st.none() | st.floats(0, 1),
    st.booleans(),
    st.none() | st.integers(0, 99),
)
def test_any_episode_is_scored_purely_and_within_bounds(
    messages: list[Message],
    prompt: int,
    row: dict[str, Any],
    parts: dict[str, float],
    reward: float | None,
    truncated: bool,
    tokens: int | None,
) -> None:
    whole = Episode(messages, prompt, row, reward, parts, truncated=truncated, tokens=tokens)
    before = repr(whole)
    for component in PURE:
        params = component.params()
        value = component.score(whole, params)
        assert repr(component.score(whole, params)) == repr(value), component.name
        recorded = "user_turn_rewards" in row and component.name.startswith("bfcl_")
        if value is not None and not recorded:
            assert math.isfinite(value), component.name
            assert component.low - 1e-9 <= value <= component.high + 1e-9, component.name
    assert repr(whole) == before


def test_an_episode_survives_json_and_scores_the_same() -> None:
    for component in PURE:
        for example in component.examples:
            given = example.episode
            copied = [Message.model_validate(json.loads(m.model_dump_json())) for m in given.messages]
            again = Episode(
                copied,
                given.prompt_length,
                json.loads(json.dumps(given.row)),
                given.env_reward,
                dict(given.env_parts),
                given.parse_errors,
                given.truncated,
                given.tokens,
            )
            params = component.params.model_validate(example.params)
            assert component.score(again, params) == component.score(given, params)
