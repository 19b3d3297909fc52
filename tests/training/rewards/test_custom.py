"""Custom Python as a reward component: its value, its failures, its switch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.algorithms.grpo import reward_components
from training.config import JobConfig, RewardComponent, config_from_yaml, config_to_yaml
from training.errors import ConfigError, CustomRewardFault, RewardFault, RewardTimeout
from training.preflight import preflight
from training.rewards.base import played, says, tool
from training.rewards.custom import SWITCH_VARIABLE, CustomParams, Runner, Tried, code_hash, plain_episode
from training.rewards.scoring import score_episode, validate_components
from training.sandbox.process import pool

PLAYED = played("2+3?", says("", "add", a=2), tool("Error: no b"), says("It is 5."), row={"answer": "5"}, env_reward=1)
ANSWER = "def reward(episode):\n    return 0.5 * (episode['row']['answer'] in episode['final_answer'])\n"
ERRORS = "def reward(episode):\n    return -sum(call['error'] is not None for call in episode['calls'])\n"


@pytest.fixture(autouse=True)
def _on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(SWITCH_VARIABLE, "true")
    yield
    pool.close()


def part(name: str, code: str, **params: Any) -> RewardComponent:
    return RewardComponent(name=name, function="custom_python", weight=1, params={"code": code, **params})


def test_several_pieces_of_code_are_components_of_one_reward() -> None:
    score = score_episode(PLAYED, [part("right", ANSWER), part("errors", ERRORS, low=-5, high=0)])
    assert score.parts == {"right": 0.5, "errors": -1.0} and score.total == -0.5


def test_code_sees_plain_data() -> None:
    seen = plain_episode(replace(PLAYED, tokens=9))
    assert seen["calls"] == [
        {"turn": 0, "name": "add", "arguments": {"a": 2}, "result": "Error: no b", "error": "no b"}
    ]
    assert (seen["question"], seen["final_answer"], seen["env_reward"]) == ("2+3?", "It is 5.", 1.0)
    assert [message["role"] for message in seen["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert set(seen) == {
        "messages",
        "prompt_length",
        "question",
        "final_answer",
        "calls",
        "row",
        "env_reward",
        "env_parts",
        "parse_errors",
        "truncated",
        "tokens",
    }


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        ("def reward(episode):\n    return 1 / 0", CustomRewardFault, r"`mine`.*ZeroDivisionError.*line 2"),
        ("def reward(episode):\n    return 2.5", CustomRewardFault, "returned 2.5, which is outside its range"),
        ("def reward(episode):\n    return None", CustomRewardFault, "value of type `NoneType`"),
        ("def reward(episode):\n    while True: pass", RewardTimeout, r"longer than its limit of 0\.3 s"),
    ],
)
def test_a_failure_is_missing_and_never_0(code: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        score_episode(PLAYED, [part("mine", code, high=2, limit_s=0.3)])


def test_code_is_tried_on_one_episode_after_another() -> None:
    lines = ["print('hm')", "while not episode['row']: pass", "return int(episode['row']['answer'])"]
    code = "\n    ".join(["def reward(episode):", *lines])
    others = [replace(PLAYED, row={}), replace(PLAYED, row={"answer": "9"})]
    with closing(Runner(CustomParams(code=code, high=5, limit_s=1))) as runner:
        first, late, over, again = (runner.try_on(episode) for episode in (PLAYED, *others, PLAYED))
    assert first == again == Tried(5.0, printed="hm\n")
    assert (late.value, late.problem) == (None, "It ran longer than its limit of 1 s; it may loop.")
    assert (over.value, over.problem) == (None, "It returned 9, which is outside its range.")


def test_it_is_off_unless_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    config = JobConfig.model_validate({"rewards": {"components": [part("mine", ANSWER).model_dump()]}})
    assert next(check for check in preflight(config, load_template=False) if check.check == "rewards").ok
    assert reward_components(config)[0].name == "mine"
    for value in ("", "false", "0", "off"):
        monkeypatch.setenv(SWITCH_VARIABLE, value)
        with pytest.raises(ConfigError, match="`mine` is custom Python, and custom rewards are switched off"):
            reward_components(config)
        check = next(check for check in preflight(config, load_template=False) if check.check == "rewards")
        assert not check.ok and "switched off" in check.message
        with pytest.raises(RewardFault, match="switched off"):
            score_episode(PLAYED, config.rewards.components)
    with pytest.raises(RewardFault, match="which is not available here"):
        score_episode(PLAYED, config.rewards.components, ask_outside=False)


def test_the_hash_names_the_code() -> None:
    digest = code_hash(ANSWER)
    assert CustomParams(code=ANSWER).sha256 == CustomParams(code=ANSWER, sha256=digest).sha256 == digest
    assert CustomParams().sha256 == ""
    assert validate_components([part("mine", ANSWER, low=1, high=1)]) == []
    problems = validate_components([part("mine", ANSWER + " ", sha256=digest), part("other", ANSWER, low=2, high=1)])
    assert problems == [
        "`mine`: sha256: the code does not match this hash.",
        "`other`, parameter `low`: the lowest value is above the highest one.",
    ]


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=st.sampled_from("a \n\t\r:#-'\"\x85\u2028\ufeff\x00字😀{}|>%@"), max_size=30))
def test_a_config_keeps_code_to_the_letter(code: str) -> None:
    """The hash would not fit otherwise; YAML knows more line ends than Python does."""
    config = JobConfig.model_validate({"rewards": {"components": [part("mine", code).model_dump()]}})
    assert config_from_yaml(config_to_yaml(config)) == config


def test_code_is_kept_in_a_config_as_it_was_written() -> None:
    config = JobConfig.model_validate({"rewards": {"components": [part("mine", ANSWER).model_dump()]}})
    shown = "".join(f"        {line}\n" for line in ANSWER.splitlines())
    assert f"code: |\n{shown}" in config_to_yaml(config)
