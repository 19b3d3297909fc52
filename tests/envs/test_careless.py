"""Careless demonstrations are right in form and wrong in what they do; starter tasks are short and can be solved."""

from __future__ import annotations

import asyncio
import json
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from envs.base import ToolEnvironment
from envs.bfcl.__main__ import main as bfcl
from envs.bfcl.demonstrations import generate_demonstrations as bfcl_demonstrations
from envs.bfcl.package import entries
from envs.bfcl.server import BfclEnvironment
from envs.toolbench import validate as proof
from envs.toolbench.__main__ import main as toolbench
from envs.toolbench.bench import Data, open_bench
from envs.toolbench.demonstrations import careless_calls, generate_demonstrations
from envs.toolbench.world import COUNT, draw_task, starter_indices
from envs.webshop.__main__ import main as webshop
from envs.webshop.demonstrations import generate_demonstrations as webshop_demonstrations
from envs.webshop.generator import STARTER_KINDS, generated_catalogue
from envs.webshop.server import WebshopEnvironment
from envs.webshop.session import Shop
from envs.wire import StepRequest, ToolCall
from tests.envs.test_demonstrations import played_again

SHARE, COPIES = 0.5, 12


def rows_of(main: Any, path: Path, *words: str) -> list[dict[str, Any]]:
    assert main([*words, "--output", str(path)]) == 0
    return [json.loads(line) for line in path.read_text().splitlines()]


def solved(environment: ToolEnvironment, task: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether the conversation, played once more, is a success; all its calls must have been readable."""
    end = played_again(environment, task, row["conversation"])
    assert end.done and end.reward is not None
    return bool(end.reward_parts["task_success"])


def test_a_careless_customer_buys_without_the_option_or_something_else() -> None:
    shop = Shop(generated_catalogue(8, 0, "starter"))
    ids = range(len(shop.goals))
    rows = list(webshop_demonstrations(shop, ids, copies=COPIES, careless_share=SHARE))
    assert rows == list(webshop_demonstrations(shop, ids, copies=COPIES, careless_share=SHARE))
    assert [row["session_id"] for row in rows] == [*ids] * COPIES
    right = [solved(WebshopEnvironment(shop), {"session_id": row["session_id"]}, row) for row in rows]
    assert 0.4 < sum(right) / len(right) < 0.6
    # Each copy decides again: hardly a task is always or never right.
    mixed = [set(right[number :: len(ids)]) == {True, False} for number in ids]
    assert all(mixed)
    careful = webshop_demonstrations(shop, ids)
    assert all(solved(WebshopEnvironment(shop), {"session_id": row["session_id"]}, row) for row in careful)


def test_a_starter_shop_is_short_and_a_forgotten_option_costs() -> None:
    shop = Shop(generated_catalogue(len(STARTER_KINDS), 3, "starter"))
    assert shop.catalogue.name == f"starter-{len(STARTER_KINDS)}-3"
    assert len({product.query for product in shop.catalogue.products}) == len(STARTER_KINDS)
    assert len(shop.goals) == len(STARTER_KINDS)
    for number in range(len(shop.goals)):
        goal = shop.goals[number]
        ((name, wanted),) = goal.named_options.items()
        assert len(goal.instruction) < 120 and f"{name}: {wanted}" in goal.instruction
        assert goal.product.options == {name: (wanted,)}
        assert shop.score(goal.product, {name: wanted}, goal).score == 1.0
        assert shop.score(goal.product, {}, goal).score == pytest.approx(2 / 3)
        assert shop.searcher.find(goal.product.query, "")[0] is goal.product


def test_webshop_writes_them(tmp_path: Path) -> None:
    words = ("--products", "4", "--difficulty", "starter")
    rows = rows_of(webshop, tmp_path / "d", "demonstrations", *words, "--copies", "3", "--careless", "1")
    assert len(rows) == 4 * 3
    tasks = rows_of(webshop, tmp_path / "t", "tasks", *words)
    assert {row["catalogue"] for row in tasks} == {"starter-4-0"} and len(tasks) == 4
    assert rows_of(webshop, tmp_path / "g", "tasks", "--products", "4")[0]["catalogue"] == "generated-4-0"


def test_careless_queries_of_toolbench_end_with_finish_and_fail() -> None:
    bench = open_bench(Data())
    rows = list(generate_demonstrations(40, seed=2, difficulty="starter", careless_share=SHARE))
    assert rows == list(generate_demonstrations(40, seed=2, difficulty="starter", careless_share=SHARE))
    right = []
    indices = islice(starter_indices(COUNT - 1 - 2 * 10_000, -1), len(rows))
    for row, index in zip(rows, indices, strict=True):
        finish = row["conversation"][-1]["tool_calls"][0]
        assert finish["name"] == "Finish" and len(row["tools"]) == 5
        assert row["conversation"][1]["content"] == draw_task(index).query
        steps = [_step_of(message) for message in row["conversation"] if message["role"] == "assistant"]
        end = asyncio.run(proof.play(bench, index, steps))[-1]
        assert end.done and end.reward_parts["format"] == 1.0
        right.append(end.reward_parts["task_success"] == 1.0)
    assert 0.3 < sum(right) / len(right) < 0.7


def _step_of(message: dict[str, Any]) -> StepRequest:
    return StepRequest(tool_calls=[ToolCall.model_validate(call) for call in message["tool_calls"]])


def test_a_claim_is_not_the_answer() -> None:
    task = draw_task(5)
    endings = {json.dumps(careless_calls(task, random.Random(seed))[-1].arguments)[:40] for seed in range(30)}
    assert len(endings) == 2  # gives up, or answers
    for seed in range(30):
        *calls, finish = careless_calls(task, random.Random(seed))
        assert finish.arguments.get("final_answer") != task.answer
        assert finish.arguments["return_type"] == "give_up_and_restart" or not calls


def test_starter_queries_are_answered_by_one_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(toolbench, tmp_path / "t", "tasks", "--count", "12", "--difficulty", "starter")
    tasks = [draw_task(row["query_id"]) for row in rows]
    assert len({task.query_id for task in tasks}) == 12
    assert {(len(task.plan), len(task.apis)) for task in tasks} == {(1, 4)}
    later = rows_of(toolbench, tmp_path / "l", "tasks", "--count", "2", "--start", "10", "--difficulty", "starter")
    assert later == rows[10:]
    empty = tmp_path / "queries.json"
    empty.write_text("[]")
    words = ["tasks", "--difficulty", "starter", "--queries", str(empty), "--output", str(tmp_path / "x")]
    assert toolbench(words) == 2
    assert "own world" in capsys.readouterr().err


def test_a_careless_agent_of_bfcl_skips_calls(tmp_path: Path) -> None:
    words = ("--split", "base", "--turns", "2", "--calls", "2")
    tasks = rows_of(bfcl, tmp_path / "t", "tasks", *words)
    ids = [row["id"] for row in tasks]
    assert len(ids) == 6
    assert all(sum(map(len, entries()[name]["ground_truth"])) <= 2 for name in ids)
    rows = rows_of(bfcl, tmp_path / "d", "demonstrations", *words, "--copies", str(COPIES), "--careless", str(SHARE))
    assert rows == list(json.loads(json.dumps(list(bfcl_demonstrations(ids, copies=COPIES, careless_share=SHARE)))))
    assert [row["id"] for row in rows] == ids * COPIES
    right = [solved(BfclEnvironment(), {"id": row["id"]}, row) for row in rows]
    assert 0.35 < sum(right) / len(right) < 0.65
    assert all(set(right[number :: len(ids)]) == {True, False} for number in range(len(ids)))
