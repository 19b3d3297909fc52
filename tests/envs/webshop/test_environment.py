from __future__ import annotations

from typing import Any

import pytest

from envs.base import EnvironmentRefusal
from envs.webshop.server import MAX_TURNS, NO_ACTION, WebshopEnvironment
from envs.webshop.session import Shop
from envs.webshop.tasks import SYSTEM_PROMPT, task_rows
from envs.webshop.validate import perfect_steps
from envs.wire import Observation, StepRequest, ToolCall


def call(name: str, **arguments: Any) -> StepRequest:
    return StepRequest(tool_calls=[ToolCall(id="1", name=name, arguments=arguments)])


def opened(shop: Shop, task: dict[str, Any] | None = None, seed: int = 0) -> tuple[WebshopEnvironment, Observation]:
    environment = WebshopEnvironment(shop)
    return environment, environment.reset({"session_id": 3} if task is None else task, seed, "e")


def text_of(observation: Observation) -> str:
    return observation.messages[-1].content


def test_the_opening_says_the_rules_and_shows_the_first_page(shop: Shop) -> None:
    _, first = opened(shop)
    assert [message.role for message in first.messages] == ["system", "user"]
    assert first.messages[0].content == SYSTEM_PROMPT
    assert text_of(first).startswith("WebShop [SEP] Instruction: [SEP] Find me ")
    assert [tool["function"]["name"] for tool in first.tools or []] == ["search", "click"]
    assert first.info["available_actions"] == {"has_search_bar": True, "clickables": ["search"]}


@pytest.mark.parametrize(
    "task",
    [
        {"session_id": 7},
        {"session_id": "7"},
        {"session_id": 7.0},
        {"item_id": "webshop_7"},
        {"item_id": "webshop_7", "conversations": None},
        {"interaction_kwargs": {"name": "webshop", "session_id": 7}},
        {"extra_info": {"index": 0, "interaction_kwargs": {"name": "webshop", "session_id": 7}}, "ability": "shopping"},
    ],
)
def test_every_kind_of_row_names_its_visit(shop: Shop, task: dict[str, Any]) -> None:
    _, first = opened(shop, task, seed=99)
    assert first.info["session_id"] == 7


def test_a_row_without_a_visit_gets_one_by_seed(shop: Shop) -> None:
    drawn = [opened(shop, {}, seed)[1].info["session_id"] for seed in range(20)]
    assert drawn == [opened(shop, {}, seed)[1].info["session_id"] for seed in range(20)]
    assert len(set(drawn)) > 10


def test_written_rows_are_played_here_and_refused_by_another_catalogue(shop: Shop) -> None:
    rows = list(task_rows(shop, 5, start=2))
    assert [row["session_id"] for row in rows] == [2, 3, 4, 5, 6]
    assert opened(shop, rows[0])[1].info["session_id"] == 2
    with pytest.raises(EnvironmentRefusal, match="belongs to the catalogue 'webshop-1000'"):
        opened(shop, {**rows[0], "catalogue": "webshop-1000"})


@pytest.mark.parametrize(
    "task",
    [
        {"session_id": "7b"},
        {"session_id": True},
        {"session_id": 1.5},
        {"session_id": -1},
        {"session_id": 10**30},
        {"session_id": [1]},
        {"item_id": "textcraft_7"},
        {"item_id": "webshop_"},
        {"item_id": "webshop_-1"},
        {"item_id": "webshop_99999999999"},
        {"item_id": "webshop_٣"},
        {"extra_info": 5},
        {"messages": 5},
        {"messages": [{"role": "user", "content": "a" * 70_000}]},
    ],
)
def test_unplayable_rows_are_refused_with_a_sentence(shop: Shop, task: dict[str, Any]) -> None:
    with pytest.raises(EnvironmentRefusal, match="The task cannot be played: "):
        opened(shop, task)


def test_the_messages_of_a_row_come_first(shop: Shop) -> None:
    prompt = [{"role": "system", "content": "Shop."}, {"role": "user", "content": "Please help me."}]
    _, first = opened(shop, {"session_id": 1, "prompt": prompt})
    assert [message.role for message in first.messages] == ["system", "user"]
    assert text_of(first).startswith("Please help me.\n\nWebShop [SEP]")
    _, first = opened(shop, {"session_id": 1, "prompt": "Please."})
    assert text_of(first).startswith("Please.\n\nWebShop [SEP]")


def test_the_perfect_visit_scores_one_with_all_parts(shop: Shop) -> None:
    environment, _ = opened(shop)
    for step in perfect_steps(shop, 3):
        last = environment.step(step)
        if not last.done:
            assert (last.reward, last.reward_parts) == (None, {})
    assert (last.done, last.reward) == (True, 1.0)
    assert {"r_type", "r_att", "r_price", "task_success", "score"} <= last.reward_parts.keys()
    assert text_of(last).startswith("Thank you for shopping with us!")
    with pytest.raises(EnvironmentRefusal):
        environment.step(StepRequest(message="again"))


def test_actions_in_the_text_do_what_calls_do(shop: Shop) -> None:
    written, _ = opened(shop)
    called, _ = opened(shop)
    for step in perfect_steps(shop, 3):
        argument = next(iter(step.tool_calls[0].arguments.values()))
        text = f"Thought: so.\n\nAction:\n{step.tool_calls[0].name}[{argument}]"
        one, other = written.step(StepRequest(message=text)), called.step(step)
        assert (text_of(one), one.reward, one.info) == (text_of(other), other.reward, other.info)
        assert (one.messages[0].role, other.messages[0].role) == ("user", "tool")


@pytest.mark.parametrize("message", ["", "I will buy it.", "click[nothing]", "search[]", "\x00"])
def test_text_without_a_possible_action_shows_the_page_again(shop: Shop, message: str) -> None:
    environment, first = opened(shop)
    answer = environment.step(StepRequest(message=message))
    assert text_of(answer) == f"{NO_ACTION}\n\n{text_of(first)}"
    assert (answer.done, answer.info["invalid_actions"]) == (False, 1)


@pytest.mark.parametrize(
    ("step", "start"),
    [
        (call("buy"), "Error: there is no such tool; this shop has search and click"),
        (call("search"), "Error: search needs the text 'keywords'"),
        (call("search", keywords=""), "Error: search needs"),
        (call("click", value=5), "Error: click needs the text 'value'"),
        (call("click", value={"a": 1}), "Error: click needs"),
        (call("click", value="Buy Now"), "Error: this cannot be clicked here\n\nWebShop [SEP]"),
        (StepRequest(parse_error="not\nJSON" * 100), "Error: the tool call could not be read: not JSON"),
    ],
)
def test_wrong_calls_get_an_error_and_the_visit_continues(shop: Shop, step: StepRequest, start: str) -> None:
    environment, _ = opened(shop)
    answer = environment.step(step)
    assert text_of(answer).startswith(start)
    assert (answer.done, answer.info["invalid_actions"]) == (False, 1)
    assert environment.step(call("search", keywords="shoes")).info["valid"]


def test_several_calls_are_played_in_order_and_no_more_than_three(shop: Shop) -> None:
    environment, _ = opened(shop)
    names = [("search", "keywords", "shirt"), ("click", "value", "Next >"), ("click", "value", "< Prev")]
    calls = [ToolCall(id=str(n), name=name, arguments={key: value}) for n, (name, key, value) in enumerate(names * 10)]
    answer = environment.step(StepRequest(tool_calls=calls))
    assert len(answer.messages) == 16
    assert ["Page 1" in m.content or "Page 2" in m.content for m in answer.messages[:3]] == [True] * 3
    assert answer.messages[3].content == "Error: at most 3 tool calls a turn are answered"


def test_calls_after_the_purchase_do_nothing(shop: Shop) -> None:
    environment, _ = opened(shop)
    *before, buy = perfect_steps(shop, 3)
    for step in before:
        environment.step(step)
    last = environment.step(
        StepRequest(tool_calls=[*buy.tool_calls, ToolCall(id="2", name="search", arguments={"keywords": "x"})])
    )
    assert (last.done, last.reward) == (True, 1.0)
    assert last.messages[1].content == "Error: the visit is over"


def test_a_visit_without_a_purchase_ends_with_nothing(shop: Shop) -> None:
    environment, _ = opened(shop)
    answers = [environment.step(StepRequest(message="search[shoes]")) for _ in range(MAX_TURNS)]
    assert [answer.done for answer in answers] == [False] * (MAX_TURNS - 1) + [True]
    assert (answers[-1].reward, answers[-1].reward_parts) == (0.0, {"task_success": 0.0, "score": 0.0})
    assert answers[-1].info["truncated"] is True


def test_a_final_step_ends_the_visit_with_nothing_bought(shop: Shop) -> None:
    environment, _first = opened(shop)
    environment.step(StepRequest(message="search[shoes]"))
    end = environment.step(StepRequest(final=True))
    assert (end.done, end.reward, end.reward_parts) == (True, 0.0, {"task_success": 0.0, "score": 0.0})
    assert (end.info["turn"], end.info["truncated"]) == (1, True)
    with pytest.raises(EnvironmentRefusal):
        environment.step(StepRequest(final=True))


def test_nothing_shows_the_goal_before_the_end(shop: Shop) -> None:
    environment, first = opened(shop)
    asin = shop.goals[3].product.asin
    assert asin not in first.model_dump_json()
    with pytest.raises(EnvironmentRefusal):
        WebshopEnvironment(shop).step(StepRequest())
    environment.close()
