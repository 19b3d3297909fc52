"""One reader of what a row says that it is: its first usual field, the same on every page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training.rows import categories_of, category_of
from webapp.datasets import rows as rows_module
from webapp.datasets.rows import categories_in_file


@pytest.mark.parametrize(
    ("row", "category"),
    [
        ({"category": "add", "data_source": "made"}, "add"),
        ({"category": "", "data_source": "made"}, "made"),
        ({"category": 3, "ability": "math"}, "math"),
        ({"extra_info": {"category": "G1"}, "split": "train"}, "train"),
        ({"extra_info": {"dataset_type": "chat"}}, "chat"),
        ({"category": "x" * 100}, "x" * 80),
        ({"question": "?"}, ""),
        (["no", "row"], ""),
        (None, ""),
    ],
)
def test_the_first_field_that_a_row_has_is_its_category(row: Any, category: str) -> None:
    assert category_of(row) == category


def test_a_reward_component_may_name_any_of_them_whole() -> None:
    assert categories_of({"category": "x" * 100, "split": "test"}) == {"x" * 100, "test"}


def test_rows_are_read_once_with_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"category": "add"}, {"data_source": "times"}, {"a": 1}, {"category": "add"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "no json\n")
    found = categories_in_file(path)
    assert found.names == ["add", "times"] and list(found.of_row) == [0, 1, -1, 0, -1]
    assert [found.of(row) for row in (0, 1, 2, 4, 9)] == ["add", "times", "", "", ""]
    assert (found.rows("add"), found.rows("times"), found.rows("other")) == ([0, 3], [1], [])
    assert categories_in_file(tmp_path / "gone").names == []
    monkeypatch.setattr(rows_module, "READ_BYTES", len(json.dumps(rows[0])) + 1)
    categories_in_file.cache_clear()
    assert list(categories_in_file(path).of_row) == [0], "what lies beyond the limit has none"
    categories_in_file.cache_clear()
