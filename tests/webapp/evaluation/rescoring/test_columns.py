"""Columns of computed values: what goes in comes out, and what is known stays."""

from __future__ import annotations

import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from django.db import connection, transaction

from training.config import RewardComponent
from training.words import Sentence, sentence
from webapp.evaluation.rescoring import columns
from webapp.evaluation.rescoring.columns import (
    Column,
    Lack,
    Mark,
    Scale,
    column_key,
    column_merge,
    columns_of,
    values_of_function,
    versions_of,
)
from webapp.evaluation.rescoring.models import ComputedColumn
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db
ITEM = RewardComponent(name="length_budget", weight=1)
LATE = sentence("The judge {name} is late.", name="x")
IDS = [uuid.UUID(int=number) for number in range(4)]


def read(run: Run, item: RewardComponent = ITEM) -> Column:
    return columns_of(run, [item])[column_key(item)]


def test_marks_come_back_as_they_were_kept(make_run: Any) -> None:
    run = make_run()
    marks = {IDS[0]: Mark(0.1), IDS[1]: Mark(None), IDS[2]: Mark(None, LATE), IDS[3]: Mark(-1e300)}
    column_merge(run, ITEM, marks)
    found = read(run)
    assert found.marks == marks and found.version == 1
    reason = found.marks[IDS[2]].reason
    assert isinstance(reason, Sentence) and reason.values == {"name": "x"}  # it can still be translated
    assert found.known() == {IDS[0]: 0.1, IDS[3]: -1e300}
    row = ComputedColumn.objects.get()
    assert len(bytes(row.ids)) + len(bytes(row.values)) + len(bytes(row.codes)) == 28 * len(marks)


def test_a_value_is_not_replaced_by_a_reason_but_a_reason_by_a_value(make_run: Any) -> None:
    run = make_run()
    column_merge(run, ITEM, {IDS[0]: Mark(0.5), IDS[1]: Mark(None, LATE), IDS[2]: Mark(None)})
    column_merge(run, ITEM, {IDS[0]: Mark(None, LATE), IDS[1]: Mark(0.25), IDS[2]: Mark(None, LATE)})
    column_merge(run, ITEM, {})
    assert read(run).marks == {IDS[0]: Mark(0.5), IDS[1]: Mark(0.25), IDS[2]: Mark(None)}
    assert versions_of([run], [ITEM]) == ((str(run.pk), column_key(ITEM), 2),)


@pytest.mark.django_db(transaction=True)
def test_two_workers_keep_each_others_marks(make_run: Any) -> None:
    run = make_run()
    column_merge(run, ITEM, {IDS[0]: Mark(0.1)})

    def merge_elsewhere() -> None:
        try:
            column_merge(run, ITEM, {IDS[2]: Mark(0.3)})
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            column_merge(run, ITEM, {IDS[1]: Mark(0.2)})
            other = pool.submit(merge_elsewhere)
            assert not wait([other], timeout=1).done, "it waits for the transaction that has the column"
        other.result(timeout=30)
    assert read(run).known() == {IDS[0]: 0.1, IDS[1]: 0.2, IDS[2]: 0.3}


def test_more_reasons_than_are_kept_count_as_the_last_one(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_REASONS", 2)
    run = make_run()
    column_merge(run, ITEM, {pk: Mark(None, Sentence(f"reason {pk.int}")) for pk in IDS})
    assert [str(mark.reason) for mark in read(run).marks.values()] == ["reason 0", "reason 1", "reason 1", "reason 1"]


def test_a_column_is_known_by_function_parameters_and_categories(make_run: Any) -> None:
    same = ITEM.model_copy(update={"name": "long", "function": "length_budget", "weight": 3.0, "clip": (0.0, 1.0)})
    assert column_key(same) == column_key(ITEM)
    assert column_key(ITEM.model_copy(update={"params": {"unit": "tokens"}})) != column_key(ITEM)
    even, odd = (ITEM.model_copy(update={"categories": [name]}) for name in ("even", "odd"))
    assert len({column_key(item) for item in (ITEM, even, odd)}) == 3
    assert all(len(column_key(item)) <= 49 for item in (ITEM, even))
    code = {"name": "own", "function": "custom_python", "weight": 1.0}
    keys = {
        column_key(RewardComponent.model_validate({**code, "params": {"code": f"def reward(e): return {number}"}}))
        for number in range(2)
    }
    assert len(keys) == 2
    run = make_run()
    column_merge(run, even, {IDS[0]: Mark(1.0), IDS[1]: Mark(None)})
    column_merge(run, odd, {IDS[1]: Mark(2.0), IDS[0]: Mark(None)})
    column_merge(make_run(), odd, {IDS[1]: Mark(8.0), IDS[2]: Mark(9.0)})
    assert values_of_function(run, ITEM) == {IDS[0]: 1.0, IDS[1]: 2.0}


SUCCESS, COHERENCE, REPETITION = (
    RewardComponent(name=name, weight=weight)
    for name, weight in (("env_success", 1.0), ("coherence", 0.5), ("repetition", 0.0))
)


@pytest.mark.parametrize(
    ("reward", "parts", "total"),
    [
        (1.25, {"env_success": 1.0, "coherence": 0.5, "repetition": 9.0}, 1.25),
        (1.0, {"env_success": 1.0, "repetition": 9.0}, 1.0),  # the other does not count for its row
        (None, {"env_success": 1.0, "repetition": 9.0}, None),
        (None, {"env_success": 1.0, "coherence": None}, None),
        (None, {"env_success": 1.0, "coherence": 0.5}, 1.25),  # the third has no weight
        (1.0, {}, None),
        (1.0, {"env_success": float("inf"), "coherence": 0.5}, None),
    ],
)
def test_what_a_run_recorded_is_weighed_where_all_of_it_is_known(
    reward: float | None, parts: dict[str, float | None], total: float | None
) -> None:
    spec = [SUCCESS, COHERENCE, REPETITION]
    scale = Scale(spec, [item.model_copy(update={"weight": 7.0}) for item in spec], {})
    found = scale.weigh(IDS[0], reward, parts)
    assert found.reward == total and found.parts == {name: value for name, value in parts.items() if value is not None}
    assert scale.lacks.rollouts == 0 and scale.lacks.by_name == {}


def test_what_was_computed_is_weighed_and_the_rest_is_counted() -> None:
    marks = {IDS[0]: Mark(0.5), IDS[1]: Mark(None), IDS[2]: Mark(None, LATE)}
    columns = {column_key(item): Column(marks) for item in (COHERENCE, REPETITION)}
    scale = Scale([SUCCESS, COHERENCE, REPETITION], [SUCCESS], columns)
    found = [scale.weigh(pk, 1.0, {"env_success": 1.0, "coherence": 9.0}).reward for pk in IDS]
    assert found == [1.25, 1.0, None, None]
    assert scale.lacks.rollouts == 2
    assert scale.lacks.by_name == {"coherence": Lack(computed=1, unscored=1, failed=Counter({LATE: 1}))}
    assert scale.lacks.by_name["coherence"].missing == 2
    unweighted = Scale([SUCCESS, REPETITION], [SUCCESS], {})
    assert unweighted.weigh(IDS[0], None, {"env_success": 1.0}).reward == 1.0
    assert (unweighted.lacks.rollouts, unweighted.lacks.by_name) == (0, {})


def test_columns_go_with_their_run(make_run: Any) -> None:
    run = make_run()
    column_merge(run, ITEM, {IDS[0]: Mark(1.0)})
    run.delete()
    assert not ComputedColumn.objects.exists()
