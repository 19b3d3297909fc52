"""The sentence that says how a dataset was made."""

from __future__ import annotations

from typing import Any

import pytest

from training.data import FilterRule
from webapp.datasets.operations import rule_words, words_of

PAIRS = {"run": "night", "min_gap": 0.5}
APART = "Best against worst rollout of each group of the run night, at least 0.5 apart."
MADE: list[tuple[str, dict[str, Any], str]] = [
    ("split", {"train_ratio": 0.85, "seed": 3}, "Training part of a split: shuffled with seed 3, the first 85%."),
    (
        "split",
        {"train_ratio": 0.333, "seed": 3, "part": "validation"},
        "Validation part of a split: shuffled with seed 3, the rows after 33.3%.",
    ),
    ("subset", {"rows": 1}, "The first row."),
    ("subset", {"rows": 4}, "The first 4 rows."),
    ("subset", {}, "The first 0 rows."),
    ("subset", {"rows": 1, "seed": 0}, "1 row drawn with seed 0."),
    ("pick", {"ids": list("abcde"), "field": "n"}, "Rows chosen by n: a, b, c, d, e."),
    ("pick", {"ids": list("abcdef")}, "Rows chosen by id: a, b, c, d, e…."),
    ("filter", {"rules": [{"field": "n", "equals": 3}, {"field": "m", "max_length": 2}]},
     "Filtered: n is 3; m is at most 2 long."),
    ("mix", {"weights": [1, 2.5], "seed": 3}, "Mixed with the weights 1 : 2.5; seed 3."),
    ("cut", {"cut": "query"}, "Cut at the first assistant turn: the model works the whole task."),
    ("cut", {"cut": "last_turn"}, "Cut before the last assistant turn: the model makes one step."),
    ("append", {"rows": 1}, "1 row added manually."),
    ("append", {"rows": 2}, "2 rows added manually."),
    ("order", {"environment": "sums"}, "Written by the environment sums."),
    ("upload", {"file_name": "a.jsonl"}, "Uploaded as a.jsonl."),
    ("rollouts", {"chosen": 1, "runs": "night", "use": "tasks"}, "The tasks of 1 rollout of night."),
    ("rollouts", {"chosen": 2, "runs": "night", "view": "solved"}, "2 rollouts of night. Found by: solved"),
    ("pairs", PAIRS, APART),
    ("pairs", {**PAIRS, "view": "solved"}, APART),
    ("pairs", {**PAIRS, "chosen": 2}, f"{APART} Of 2 groups."),
    ("pairs", {**PAIRS, "chosen": 1, "view": "solved"}, f"{APART} Of 1 group. Found by: solved"),
    ("pairs", {**PAIRS, "unread": 1}, f"{APART} 1 rollout with unreadable calls was skipped."),
    ("pairs", {**PAIRS, "unread": 2}, f"{APART} 2 rollouts with unreadable calls were skipped."),
    ("of a later version", {}, "of a later version"),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "options", "words"), MADE)
def test_a_sentence_says_how_it_was_made(operation: str, options: dict[str, Any], words: str) -> None:
    assert words_of(operation, options) == words


@pytest.mark.parametrize(
    ("rule", "plain", "negated"),
    [
        ({"equals": None}, "f is None", "f is not None"),
        ({"equals": "3"}, "f is '3'", "f is not '3'"),
        ({"contains": ""}, "f contains “”", "f does not contain “”"),
        ({"min_length": 0}, "f is at least 0 long", "f is shorter than 0"),
        ({"max_length": 0}, "f is at most 0 long", "f is longer than 0"),
    ],
)
def test_a_rule_is_shown_in_words(rule: dict[str, Any], plain: str, negated: str) -> None:
    assert rule_words(FilterRule(field="f", **rule)) == plain
    assert rule_words(FilterRule(field="f", negate=True, **rule)) == negated
