"""Reading a row of a dataset: a value at a path, and what the row says that it is."""

from __future__ import annotations

from typing import Any

CATEGORY_FIELDS = ("category", "data_source", "ability", "split", "extra_info.category", "extra_info.dataset_type")
CATEGORY_CHARACTERS = 80
TRUTH_FIELDS = ("ground_truth", "reward_model.ground_truth", "extra_info.answer", "answer")
"""Where rows have their right answer, the most specific first."""
MAX_ANSWER_CHARS = 200


def row_value(row: Any, path: str) -> Any:
    """The value of a row at a dotted path such as ``reward_model.ground_truth``, or ``None``."""
    value: Any = row
    for key in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def answer_of(row: Any) -> str:
    """The row's short right answer, or the text behind `####` in a solution; empty where it has none."""
    for field in TRUTH_FIELDS:
        value = row_value(row, field)
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            answer = str(value).rpartition("####")[2].strip()
            if answer and len(answer) <= MAX_ANSWER_CHARS and "\n" not in answer:
                return answer
    return ""


def category_of(row: Any) -> str:
    """The category of a row, from the first of the usual fields that it has; empty where it has none."""
    values = (row_value(row, field) for field in CATEGORY_FIELDS)
    return next((value[:CATEGORY_CHARACTERS] for value in values if isinstance(value, str) and value), "")


def categories_of(row: dict[str, Any]) -> set[str]:
    """All categories of a row, whole: a reward component may name any of them."""
    found = (row_value(row, field) for field in CATEGORY_FIELDS)
    return {value for value in found if isinstance(value, str)}
