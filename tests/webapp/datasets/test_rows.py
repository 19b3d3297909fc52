"""Rows by their number, identities that a worker makes, and expected answers: both sides of each limit."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache

from training.config import RewardComponent
from webapp.datasets import rows as rows_module
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.rows import expected_of, identities_of, row_of
from webapp.datasets.tasks import identify


def written(lines: list[str], **over: Any) -> Dataset:
    """A dataset that only its file knows."""
    dataset = Dataset(**({"id": uuid.uuid4(), "state": DatasetState.READY, "rows": len(lines)} | over))
    dataset.rows_path.parent.mkdir(parents=True)
    dataset.rows_path.write_text("".join(f"{line}\n" for line in lines))
    return dataset


def numbered(count: int) -> list[str]:
    return [json.dumps({"n": number}) for number in range(1, count + 1)]


def test_a_row_is_found_by_its_number_in_a_file_of_any_length() -> None:
    dataset = written(numbered(130))
    asked = (0, 1, 2, 64, 65, 66, 128, 129, 130, 131)
    found = [row_of(dataset, number) for number in asked]
    assert [row and row["n"] for row in found] == [None, 1, 2, 64, 65, 66, 128, 129, 130, None]


def test_more_rows_than_the_file_has_are_not_there() -> None:
    dataset = written(numbered(64), rows=200)
    assert row_of(dataset, 64) == {"n": 64}
    assert [row_of(dataset, number) for number in (65, 129)] == [None, None]


def test_a_number_outside_of_the_rows_is_none_whatever_the_file_has() -> None:
    dataset = written(numbered(64), rows=60)
    assert [row_of(dataset, number) for number in (-1, 0, 61, 64)] == [None] * 4 and row_of(dataset, 60) == {"n": 60}


@pytest.mark.parametrize("line", ["[1]", "no json", "[" * 100_000])
def test_a_line_that_is_no_row_is_not_shown(line: str) -> None:
    assert row_of(written([line]), 1) is None


def test_only_a_ready_dataset_has_rows_and_only_while_its_file_is_there() -> None:
    assert row_of(written(numbered(1), state=DatasetState.NEEDS_CHOICE), 1) is None
    gone = written(numbered(1))
    gone.rows_path.unlink()
    assert row_of(gone, 1) is None


def test_a_line_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.dumps({"text": "x" * 100})
    for most, found in ((len(line) + 1, True), (len(line), False)):  # the end of the line counts
        monkeypatch.setattr(rows_module, "MAX_LINE_BYTES", most)
        assert (row_of(written([line]), 1) is not None) is found


def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The tasks that were sent, with what was said of each."""
    sent: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(rows_module.current_app, "send_task", lambda name, **said: sent.append((name, said)))
    cache.clear()
    return sent


def test_the_identities_of_a_small_file_are_made_at_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = asked(monkeypatch)
    line = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    dataset = written([line, line])
    size = dataset.rows_path.stat().st_size
    monkeypatch.setattr(rows_module, "AT_ONCE_BYTES", size)
    found = identities_of(dataset.rows_path)
    assert found is not None and dataset.identities_path.is_file() and sent == []
    dataset.rows_path.unlink()
    assert identities_of(dataset.rows_path) is not None, "they are kept"
    dataset.identities_path.unlink()
    assert identities_of(dataset.rows_path) is None


def test_a_worker_is_asked_once_for_the_identities_of_a_larger_file(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = asked(monkeypatch)
    dataset = written([json.dumps({"messages": [{"role": "user", "content": "hi"}]})])
    monkeypatch.setattr(rows_module, "AT_ONCE_BYTES", dataset.rows_path.stat().st_size - 1)
    assert identities_of(dataset.rows_path) is None and identities_of(dataset.rows_path) is None
    assert sent == [("datasets.identify", {"args": [str(dataset.pk)], "queue": "long", "retry": False})]
    identify(str(dataset.pk))
    assert identities_of(dataset.rows_path) is not None and len(sent) == 1


def test_rows_that_cannot_be_read_have_no_identities(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\x00\xff\x89PNG" * 500)
    assert identities_of(path) is None


def component(**params: Any) -> RewardComponent:
    return RewardComponent(name="answer", weight=1, params=params)


def test_expected_answers_are_first_those_that_components_read() -> None:
    row = {
        "answer": 5,
        "gold": "five",
        "solution": "",
        "target": [],
        "verifier": {},
        "expected": None,
        "final_answer": 0,
    }
    fields = [(found.field, found.value, found.text) for found in expected_of(row, [component(truth_field="gold")])]
    assert fields == [("gold", "five", "five"), ("answer", 5, "5"), ("final_answer", 0, "0")]
    assert [found.field for found in expected_of(row)] == ["answer", "final_answer"]
    assert [found.field for found in expected_of({"a": 1}, [component(truth_field=""), component()])] == []
    assert expected_of({"answer": {"wie": "größer"}})[0].text == '{"wie": "größer"}'


@pytest.mark.parametrize(("length", "shown"), [(4000, "x" * 4000), (4001, "x" * 4000 + " …")])
def test_a_long_expected_answer_is_cut(length: int, shown: str) -> None:
    assert expected_of({"answer": "x" * length})[0].text == shown
