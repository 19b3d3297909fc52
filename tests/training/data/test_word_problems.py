"""Word problems of any size: numbers up to a limit, and worked rows that calculate nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from training.data.__main__ import main
from training.data.formats.gsm8k import word_problems


@pytest.mark.parametrize("largest", [2, 9, 30])
def test_no_number_of_a_question_is_over_the_limit(largest: int) -> None:
    rows = list(word_problems(300, steps=2, largest=largest))
    numbers = [int(number) for row in rows for number in re.findall(r"\d+", row["question"])]
    assert max(numbers) == largest and min(numbers) >= 2


def test_a_careless_solution_has_the_form_and_takes_the_first_number() -> None:
    right = list(word_problems(400, steps=1, shape="sft", largest=9))
    rows = list(word_problems(400, steps=1, shape="sft", largest=9, careless=0.5))
    assert [row["prompt"] for row in rows] == [row["prompt"] for row in right]
    changed = [row for row, other in zip(rows, right, strict=True) if row != other]
    assert 160 < len(changed) < 240
    for row in changed:
        first = re.findall(r"\d+", row["prompt"])[0]
        assert row["completion"] == f"{first} = {first}\n\nFinal Answer: {first}"
    tasks = list(word_problems(50, careless=1.0))
    assert tasks == list(word_problems(50))  # the answers of tasks are always right


def test_the_command_line_takes_both(tmp_path: Path) -> None:
    words = ["problems", "--count", "20", "--shape", "sft", "--largest", "9", "--careless", "1"]
    assert main([*words, "--output", str(tmp_path / "rows")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert len(rows) == 20 and all(re.match(r"(\d) = \1\n", row["completion"]) for row in rows)
