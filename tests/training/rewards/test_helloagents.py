"""HelloAgents' formulas, and GSM8K's own solutions as the check of the extraction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training.rewards.helloagents import COMBINED_SPEC, extract
from training.rewards.scoring import score_episode

from .episodes import episode, says, score

ROW = {"answer": "so 48+24 = 72\n#### 72"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Final Answer: 72", 72),
        ("final answer:  $1,234.50 dollars", 1234.5),
        ("a\n#### 9", 9),
        ("答案是：42", 42),
        ("答案是 3.5 元", 3.5),
        ("Therefore, the answer is 18.", 18),
        ("Therefore 7 remain", 7),
        ("1 and 2\n3 then 4\nbye", 4),
        ("Final Answer: 40%", 40),
        ("Final Answer: -3", -3),
        ("1,000,000", 1_000_000),
        ("no number", None),
        ("", None),
        ("Final Answer: unknown", None),
        ("Final Answer: 5\n#### 6", 5),
        ("version v2", None),
        ("x = .5", None),
    ],
)
def test_extraction(text: str, expected: float | None) -> None:
    assert extract(text) == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"ground_truth": "72"}, 1.0),
        ({"ground_truth": 72}, 1.0),
        ({"reward_model": {"ground_truth": "72"}}, 1.0),
        ({"extra_info": {"answer": "x #### 72"}}, 1.0),
        (ROW, 1.0),
        ({"ground_truth": "71.9998"}, 0.0),
        ({"ground_truth": "71.99995"}, 1.0),
        ({"answer": "long prose without a mark, 12 of it " * 4}, None),
        ({}, None),
    ],
)
def test_accuracy(row: dict[str, object], expected: float | None) -> None:
    assert score("helloagents_accuracy", episode("q", says("Final Answer: 72"), row=row)) == expected


def test_the_right_answer_can_be_anywhere() -> None:
    played = episode("q", says("72"), row={"a": {"b": "72"}, "answer": "5"})
    assert score("helloagents_accuracy", played, truth_field="a.b") == 1.0
    assert score("helloagents_accuracy", played) == 0.0


@pytest.mark.parametrize(
    ("formula", "length", "expected"),
    [
        ("code", 1024, 1.0),
        ("code", 2048, 0.9),
        ("code", 20 * 1024, 0.0),
        ("guide", 5, 0.5),
        ("guide", 100, -9.0),
        ("tool", 1024, 0.9),
        ("tool", 512, 0.95),
    ],
)
def test_the_three_length_formulas(formula: str, length: int, expected: float) -> None:
    text = "72".rjust(length)
    got = score("helloagents_length", episode("q", says(text), row=ROW), formula=formula, penalty_weight=0.1)
    assert got == pytest.approx(expected)


def test_steps() -> None:
    def steps(text: str, **params: object) -> float | None:
        return score("helloagents_step", episode("q", says(text), row=ROW), **params)

    assert steps("a\nb\n72") == pytest.approx(1.2)
    assert steps("\n" * 9 + "72") == pytest.approx(1.5)
    assert steps("Step 1 a\nStep 2 b\n第3步 c\n4. d\n72", count="markers") == pytest.approx(1.4)
    assert steps("\n" * 9 + "72", count="markers") == 1.0
    assert steps("wrong\n71") == pytest.approx(0.1)


def test_combined_by_hand() -> None:
    result = score_episode(episode("q", says("48/2 is 24.\n\nFinal Answer: 72"), row=ROW), COMBINED_SPEC)
    assert result.total == pytest.approx(1.0 * 1 + 0.5 * 1 + 0.3 * 1.2)


def test_gsm8ks_own_solutions_are_right(seed_data: Path) -> None:
    path = next((seed_data / "seed3_helloagents_gsm8k").rglob("*test*.jsonl"))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 1319
    right = [score("helloagents_accuracy", episode(row["question"], says(row["answer"]), row=row)) for row in rows]
    assert right == [1.0] * 1319
    others = [score("helloagents_accuracy", episode("q", says("Final Answer: 123456.5"), row=row)) for row in rows]
    assert others == [0.0] * 1319
