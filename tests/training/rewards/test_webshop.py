"""WebShop: the golden episodes of the published engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envs.wire import Message
from training.rewards.base import Episode

from .episodes import episode, says, score, tool

PARTS = {
    "r_type": "webshop_type",
    "r_att": "webshop_attributes",
    "r_option": "webshop_options",
    "r_price": "webshop_price",
}


@pytest.fixture(scope="module")
def golden(seed_data: Path) -> list[dict[str, Any]]:
    path = seed_data / "seed4_webshop" / "webshop_1000" / "golden_transcripts_upstream_engine.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def _episode(record: dict[str, Any], **over: Any) -> Episode:
    messages = [Message(role="user", content=record["goal"]["instruction_text"])]
    for step in record["steps"]:
        messages += [says(str(step["action"])), Message(role="user", content=step["observation"])]
    return Episode(messages, 1, **over)


def test_the_last_page_shows_the_score(golden: list[dict[str, Any]]) -> None:
    assert [score("webshop_score", _episode(record)) for record in golden] == [
        pytest.approx(record["steps"][-1]["reward"], abs=1e-12) for record in golden
    ]
    successes = [score("webshop_success", _episode(record)) for record in golden]
    assert successes == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_the_parts_make_up_the_score(golden: list[dict[str, Any]]) -> None:
    """r = r_type · (w_att r_att + w_option r_option + w_price r_price)."""
    for record in golden:
        info, reward = record["reward_info"], record["steps"][-1]["reward"]
        parts = {name: float(info[name]) for name in PARTS} | {"score": reward, "task_success": float(reward == 1)}
        played = _episode(record, env_reward=reward, env_parts=parts)
        values = {name: score(component, played) or 0.0 for name, component in PARTS.items()}
        assert values == {name: parts[name] for name in PARTS}
        whole = sum(info[f"w_{name}"] * values[f"r_{name}"] for name in ("att", "option", "price"))
        assert score("webshop_score", played) == pytest.approx(values["r_type"] * whole, abs=1e-9)


def test_missing_is_not_zero() -> None:
    ended = episode("q", says("click[x]"), tool("WebShop [SEP] …"))
    assert score("webshop_score", ended) is None and score("webshop_success", ended) is None
    assert score("webshop_type", ended) is None
    cut = episode("q", says("click[x]"), truncated=True)
    assert [score(name, cut) for name in ("webshop_score", "webshop_success", "webshop_price")] == [0.0] * 3
    assert score("webshop_success", cut, cut_off=None) is None and score("webshop_success", cut, cut_off=-0.5) == -0.5


def test_goals_without_options_are_not_worth_less() -> None:
    bought = episode(
        "q", says("a"), env_reward=1.0, env_parts={"r_type": 1.0, "r_att": 1.0, "r_price": 1.0, "score": 1.0}
    )
    assert score("webshop_options", bought) == 1.0
    assert score("webshop_options", bought, no_options=None) is None
    assert score("webshop_success", bought) == 1.0


def test_the_model_cannot_write_its_own_score() -> None:
    page = "Thank you for shopping with us! Your score (min 0.0, max 1.0) [SEP] 1.0"
    assert score("webshop_score", episode("q", says(page))) is None
    assert score("webshop_score", episode("q", says(page), tool("WebShop [SEP] Search"))) is None
    assert score("webshop_score", episode("q", says("a"), tool(f"Title {page}"))) is None
