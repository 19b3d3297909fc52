"""Scoring, its faults, and the check of a list of components."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.wire import Message, ToolCall
from training.config import RewardComponent
from training.errors import ConfigError, RewardFault
from training.rewards.base import Component, Episode
from training.rewards.scoring import COMPONENTS, form_components, score_episode, validate_components
from training.rewards.text import MAX_REWARD

from .episodes import GOLD_EN, GOLD_ZH, episode, says, tool


def part(name: str, weight: float = 1.0, **params: Any) -> RewardComponent:
    return RewardComponent(name=name, weight=weight, params=params)


def fake(monkeypatch: pytest.MonkeyPatch, result: Any) -> list[RewardComponent]:
    def run(*_: Any) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setitem(COMPONENTS, "odd", Component("odd", "Odd", "Odd.", run))
    return [part("coherence"), part("odd")]


def test_the_default_weights_are_the_seeds() -> None:
    weights = {item.name: item.weight for item in form_components()}
    assert list(weights.values()) == [0.3, 0.2, 0.2, 0.2, 0.1]
    assert "task_success" not in weights and "task_success" in COMPONENTS
    assert validate_components(form_components()) == []


def test_task_success_is_the_environments_reward_or_missing() -> None:
    assert score_episode(episode("q", env_reward=0.25), [part("task_success", 4)]).total == 1.0
    assert score_episode(episode("q", env_reward=0.0), [part("task_success")]).parts == {"task_success": 0.0}
    with pytest.raises(RewardFault, match="`task_success` has no value for this episode"):
        score_episode(episode("q"), [part("task_success")])


def test_an_episode_cut_off_without_a_verdict_is_worth_what_the_spec_says() -> None:
    cut = replace(episode("q"), truncated=True)
    assert score_episode(cut, [part("task_success")]).parts == {"task_success": 0.0}
    assert score_episode(replace(cut, env_reward=0.5), [part("task_success")]).parts == {"task_success": 0.5}
    worse = RewardComponent(name="task_success", weight=2, params={"cut_off": -0.5})
    assert score_episode(cut, [worse]).total == -1.0
    with pytest.raises(RewardFault, match="has no value for this episode"):
        score_episode(cut, [RewardComponent(name="task_success", weight=1, params={"cut_off": None})])


def test_the_total_is_the_plain_weighted_sum() -> None:
    chosen = [part("task_success", -3), part("coherence", 2)]
    result = score_episode(episode("q", says("hi"), env_reward=1.0), chosen)
    assert result.parts == {"task_success": 1.0, "coherence": 0.8}
    assert result.total == pytest.approx(-1.4)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), -float("inf"), "0.5", True, [1.0], 1j])
def test_a_value_that_is_no_finite_number_is_a_fault(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    with pytest.raises(RewardFault, match="`odd`"):
        score_episode(GOLD_EN, fake(monkeypatch, value))


def test_a_component_that_raises_is_a_fault_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RewardFault, match="ZeroDivisionError while scoring `odd`: by hand"):
        score_episode(GOLD_EN, fake(monkeypatch, ZeroDivisionError("by hand")))


def test_whole_numbers_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert score_episode(GOLD_EN, fake(monkeypatch, 1)).parts["odd"] == 1.0


def test_mistakes_of_the_run_are_not_the_rollouts() -> None:
    for components in ([], [part("nobody")], [part("coherence", base_score=2)]):
        with pytest.raises(ConfigError):
            score_episode(GOLD_EN, components)


def test_validate_names_each_problem_once() -> None:
    problems = validate_components(
        [
            part("nobody"),
            part("coherence", base_score=7, colour="red"),
            part("final_answer", min_chars=9, max_chars=3),
            part("coherence"),
        ]
    )
    assert len(problems) == 5
    assert "no reward component `nobody`" in problems[0] and "coherence" in problems[0]
    assert "parameter `base_score`" in problems[1] and "less than or equal to 1" in problems[1]
    assert "parameter `colour`" in problems[2]
    assert problems[3] == "`final_answer`, parameter `min_chars`: the lower bound of the length is above the upper one."
    assert "twice" in problems[4]


def test_gold_is_high_and_nothing_is_low() -> None:
    for gold in (GOLD_ZH, GOLD_EN):
        question = gold.messages[0].content
        assert score_episode(gold, form_components()).total > 0.9
        for poor in (
            episode(question),
            episode(question, says("")),
            episode(question, says("啊啊啊啊")),
            episode(question, says("", "a"), tool("Error: nonsense", "a"), says("")),
            episode(question, says("{"), tool("Error: unreadable"), says("{"), parse_errors=2),
        ):
            assert score_episode(poor, form_components()).total < 0.45


def seconds_to_score(result: str) -> float:
    """The best of 50: a busy machine slows the others."""
    turns = [m for i in range(4) for m in (says("我来查询一下天气", "a"), tool(result, "a"))]
    played = episode("深圳今天的天气怎么样，适合出门吗？", *turns, says("深圳今天的天气很好，适合出门。" * 10))
    times = []
    for _ in range(50):
        start = time.thread_time()
        score_episode(played, form_components())
        times.append(time.thread_time() - start)
    return min(times)


def test_scoring_is_as_fast_for_long_results_as_for_their_beginnings() -> None:
    """A ratio within one run, which a slow machine does not change; 25 would be read if the whole text were."""
    assert seconds_to_score("天气 result " * 5000) < 3 * seconds_to_score("天气 result " * 200)


_text = st.one_of(st.text(max_size=80), st.sampled_from(["Error:", "错误: 未知工具", "计算天气", "1053", "search"]))
_messages = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["system", "user", "assistant", "tool"]),
        content=_text,
        tool_calls=st.none()
        | st.lists(st.builds(ToolCall, id=st.sampled_from("abc"), name=_text, arguments=st.just({})), max_size=3),
        tool_call_id=st.none() | st.sampled_from(["", "a", "b", "c"]),
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(messages=_messages, prompt=st.integers(0, 14), errors=st.integers(0, 3))
def test_any_episode_has_parts_between_0_and_1(messages: list[Message], prompt: int, errors: int) -> None:
    played = Episode(messages=messages, prompt_length=prompt, parse_errors=errors)
    result = score_episode(played, form_components())
    assert all(0.0 <= value <= 1.0 for value in result.parts.values())
    assert -1e-12 <= result.total <= 1.0 + 1e-12
    assert result == score_episode(played, form_components())


@pytest.mark.parametrize("value", [1.0001e6, -2e6, 1e300, 10**400])
def test_a_value_beyond_the_limit_excludes_its_rollout(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    """A huge finite reward crashed the trainer where the group's squares were summed."""
    with pytest.raises(RewardFault, match="`odd` gave"):
        score_episode(GOLD_EN, fake(monkeypatch, value))


def test_the_limit_itself_is_a_reward_and_the_weighted_sum_has_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    components = fake(monkeypatch, -1e6)[1:]
    assert score_episode(GOLD_EN, components).total == -1e6 == -MAX_REWARD
    with pytest.raises(RewardFault, match="weighted sum is -2e"):
        score_episode(GOLD_EN, [components[0].model_copy(update={"weight": 2.0})])
