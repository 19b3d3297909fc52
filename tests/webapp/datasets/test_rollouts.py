"""Datasets of rollouts and of pairs: both sides of each limit, and which rollouts become rows."""

from __future__ import annotations

import io
import json
import math
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from tests.training.exports.test_pairs import journal, rollout, scored
from training.errors import DataError
from webapp.common.storage import attempt_dir
from webapp.datasets import rollouts as rollouts_module
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.recorded import (
    _chosen_in_batches,
    _demonstration_row,
    _lines_at,
    _Writer,
    chosen_path,
    groups_path,
    journals_of,
    pairs_make,
    rows_at,
)
from webapp.datasets.rollouts import gaps_of, pairs_order, pairs_problem, rollouts_order
from webapp.people.teams.models import Project
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_broker")]
Builder = Callable[..., Any]
GIB = 1024**3


@pytest.fixture
def played(make_run: Builder) -> Run:
    """An ended run with a journal of two rollouts."""
    run: Run = make_run(name="night", state="succeeded", attempt=1)
    events = [event for name, reward in (("a", 0.1), ("b", 1.0)) for event in rollout(name, reward)]
    journal(attempt_dir(run.pk, 1), [*events, scored("a", "b")])
    return run


def recorded(run: Run, **over: Any) -> Rollout:
    fields = {"attempt": 1, "step": 1, "group": 0, "index": Rollout.objects.count(), "status": "completed", "seq": 1}
    return Rollout.objects.create(run=run, started_at=timezone.now(), **(fields | over))


def asked(run: Run, count: int = 1, use: Any = "demonstrations", **over: Any) -> Dataset:
    ids = [uuid.UUID(int=number) for number in range(count)]
    values = {
        "project": run.project,
        "user": None,
        "name": "d",
        "runs": [run],
        "ids": ids,
        "use": use,
        "view": "v" * 600,
    }
    return rollouts_order(**(values | over))


@pytest.mark.parametrize(("count", "good"), [(0, False), (1, True), (10_000, True), (10_001, False)])
def test_up_to_ten_thousand_rollouts_are_saved_at_once(count: int, good: bool, played: Run) -> None:
    if good:
        made = asked(played, count)
        assert len(json.loads(chosen_path(made).read_text())) == count == made.lineage["options"]["chosen"]
        return
    with pytest.raises(ValidationError, match="Between 1 and 10000 rollouts"):
        asked(played, count)


def test_an_order_says_of_which_runs_and_how_they_were_found(played: Run, make_run: Builder) -> None:
    runs = [played, *(make_run(name=name) for name in "xyz")]
    for count, named in ((3, "night, x, y"), (4, "night, x, y…")):
        options = asked(played, runs=runs[:count]).lineage["options"]
        assert (options["runs"], options["run_ids"]) == (named, [str(run.pk) for run in runs[:count]])
        assert options["view"] == "v" * 500 and options["use"] == "demonstrations"


def waiting(make_dataset: Builder, operation: str, count: int, **over: Any) -> None:
    for _number in range(count):
        make_dataset(**({"state": DatasetState.CHECKING, "lineage": {"operation": operation}} | over))


@pytest.mark.parametrize("operation", ["rollouts", "pairs"])
def test_three_of_a_project_are_made_at_once(
    operation: str, played: Run, make_dataset: Builder, elsewhere: Project
) -> None:
    def ask() -> Dataset:
        return asked(played) if operation == "rollouts" else pairs_order(run=played, user=None, name="p", min_gap=1.0)

    waiting(make_dataset, operation, 2)
    waiting(make_dataset, operation, 3, project=elsewhere)
    waiting(make_dataset, operation, 3, state=DatasetState.READY)
    waiting(make_dataset, "mix", 3)
    assert ask().lineage["operation"] == operation
    with pytest.raises(ValidationError, match="being created in this project already"):
        ask()


def test_both_need_room_on_the_disk(played: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(path.stat().st_size for path in journals_of(played))
    assert size > 100
    for need, ask in (
        (GIB, lambda: asked(played)),
        (size + GIB, lambda: pairs_order(run=played, user=None, name="p", min_gap=1.0)),
    ):
        free = need - 1
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))  # noqa: B023
        with pytest.raises(ValidationError, match="disk is nearly full"):
            ask()
        free += 1
        assert ask().state == DatasetState.CHECKING


def test_an_order_that_cannot_be_kept_leaves_no_files(played: Run, settings: Any, monkeypatch: Any) -> None:
    def fail(_dataset: Dataset) -> None:
        raise RuntimeError

    folders = Path(settings.DATA_DIR) / "datasets"
    before = set(folders.glob("*")) if folders.is_dir() else set()
    monkeypatch.setattr(rollouts_module, "version_insert", fail)
    with pytest.raises(RuntimeError):
        asked(played)
    with pytest.raises(RuntimeError):
        pairs_order(run=played, user=None, name="p", min_gap=1.0, groups=[(1, 0)])
    assert set(folders.glob("*")) == before


def test_tasks_are_of_datasets_of_the_project_that_are_there(
    played: Run, make_dataset: Builder, make_run: Builder, elsewhere: Project
) -> None:
    source, theirs = make_dataset(name="s"), make_dataset(project=elsewhere)
    played.config["data"]["train"] = str(source.rows_path)
    played.save(update_fields=["config"])
    hidden = recorded(played, row=0, held_out=True)
    without, stranger = recorded(played, row=None), recorded(make_run(), row=0)
    for ids in ([hidden.pk], [without.pk], [stranger.pk], [uuid.uuid4()]):
        with pytest.raises(ValidationError, match="not rows of a dataset that is here"):
            asked(played, use="tasks", ids=ids)
    good = recorded(played, row=1)
    assert [parent["id"] for parent in asked(played, use="tasks", ids=[good.pk]).lineage["parents"]] == [str(source.pk)]
    assert asked(played, ids=[good.pk]).lineage["parents"] == []
    source.rows_path.unlink()
    with pytest.raises(ValidationError, match="not rows of a dataset that is here"):
        asked(played, use="tasks", ids=[good.pk])
    played.config["data"]["train"] = str(theirs.rows_path)
    played.save(update_fields=["config"])
    with pytest.raises(ValidationError, match="not rows of a dataset that is here"):
        asked(played, use="tasks", ids=[good.pk])


# --- Pairs ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("state", "ends"),
    [
        ("running", False),
        ("queued", False),
        ("stopping", False),
        ("paused", True),
        ("failed", True),
        ("cancelled", True),
    ],
)
def test_pairs_are_made_once_a_run_does_not_play(state: str, ends: bool, played: Run) -> None:
    played.state = state
    assert (pairs_problem(played) == "") is ends


@pytest.mark.parametrize(
    ("gap", "good"),
    [(0.0, False), (-0.1, False), (1e-9, True), (1e6, True), (1e6 + 1, False), (math.inf, False), (math.nan, False)],
)
def test_a_gap_is_above_zero(gap: float, good: bool, played: Run) -> None:
    if good:
        made = pairs_order(run=played, user=None, name="p", min_gap=gap, groups=[(2, 1), (1, 0)], view="v" * 600)
        options = made.lineage["options"]
        assert (options["min_gap"], options["chosen"], options["view"]) == (gap, 2, "v" * 500)
        assert groups_path(made).is_file() and made.reading == {"format": "preference"}
        return
    with pytest.raises(ValidationError) as caught:
        pairs_order(run=played, user=None, name="p", min_gap=gap)
    assert list(caught.value.message_dict) == ["min_gap"]


def test_gaps_are_of_groups_of_one_run_that_count(
    played: Run, make_run: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group, rewards in enumerate(((0.0, 0.5), (0.25, 0.25), (0.0, 1.0))):
        for reward in rewards:
            recorded(played, group=group, reward=reward)
    recorded(played, group=0, reward=9.0, held_out=True)
    recorded(played, group=1, reward=9.0, parse_errors=1)
    recorded(played, group=2, reward=None)
    recorded(played, group=0, reward=7.0, step=2)
    recorded(make_run(), group=0, reward=9.0)
    assert sorted(gaps_of(played)) == [0.0, 0.0, 0.5, 1.0]
    monkeypatch.setattr(rollouts_module, "MAX_GROUPS", 2)
    assert len(gaps_of(played)) == 2


def test_pairs_of_a_run_of_another_project_are_not_made(
    played: Run, make_dataset: Builder, elsewhere: Project, tmp_path: Path
) -> None:
    options = {"run": "night", "run_id": str(played.pk), "min_gap": 0.5}
    mine, theirs = (
        make_dataset(project=where, lineage={"operation": "pairs", "options": options, "parents": []})
        for where in (played.project, elsewhere)
    )
    with pytest.raises(DataError, match="night, whose rollouts these are, was deleted"):
        pairs_make(theirs, tmp_path / "theirs")
    assert pairs_make(mine, tmp_path / "mine").pairs == 1


# --- Rows -------------------------------------------------------------------------------------------------------------
TALK = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def row_of(messages: list[dict[str, Any]], tools: list[Any] | None = None, **over: Any) -> Any:
    made = Rollout(run=Run(name="night"), step=3, outcome="solved", reward=1.0, **({"status": "completed"} | over))
    return _demonstration_row(made, [Turn(messages=messages[:1]), Turn(messages=messages[1:])], tools)


@pytest.mark.parametrize(
    ("over", "kept"),
    [
        ({}, True),
        ({"status": "truncated"}, True),
        ({"status": "excluded"}, False),
        ({"status": "running"}, False),
        ({"parse_errors": 1}, False),
        ({"held_out": True}, False),
    ],
)
def test_only_finished_rollouts_of_open_tasks_are_demonstrations(over: dict[str, Any], kept: bool) -> None:
    assert (row_of(TALK, **over) is not None) is kept


def test_a_demonstration_is_a_row_that_a_dataset_can_hold() -> None:
    made = row_of(TALK, [{"name": "f"}])
    assert (made["messages"], made["tools"]) == (TALK, [{"name": "f"}]) and "tools" not in row_of(TALK, [])
    assert made["provenance"]["run_name"] == "night" and made["provenance"]["step"] == 3
    assert row_of(TALK[:1]) is None and row_of([]) is None
    deep: Any = []
    for _level in range(90):
        deep = [deep]
    assert row_of([TALK[0], {**TALK[1], "extra": deep}]) is None
    assert row_of([{"role": "wizard", "content": "q"}, TALK[1]]) is None


def test_rows_are_read_by_their_places(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"n": 0}\n{"n": 1}\n{"n": 2}\n{"n": 3}')
    assert rows_at(path, {1, 3, 9}) == {1: {"n": 1}, 3: {"n": 3}} and rows_at(path, set()) == {}
    assert list(_lines_at(path, {0, 3})) == [b'{"n": 0}\n', b'{"n": 3}\n']
    assert list(_lines_at(path, {2})) == [b'{"n": 2}\n'] and list(_lines_at(path, {9})) == []


def test_a_file_of_rollouts_has_the_limit_of_an_upload(settings: Any) -> None:
    settings.MAX_UPLOAD_BYTES = 6
    file = io.BytesIO()
    writer = _Writer(file)
    writer.add(b"abc")
    writer.add(b"def")
    assert (file.getvalue(), writer.rows, writer.size) == (b"abcdef", 2, 6)
    with pytest.raises(DataError, match="larger than a dataset may be"):
        writer.add(b"g")
    assert file.getvalue() == b"abcdef"


def test_chosen_rollouts_come_in_their_order_and_from_the_project_alone(
    played: Run, make_run: Builder, make_dataset: Builder, elsewhere: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.datasets.recorded.CHUNK", 2)
    rows = [recorded(played) for _number in range(5)]
    stranger = recorded(make_run(project=elsewhere))
    ids = [row.pk for row in reversed(rows)]
    ids.insert(1, stranger.pk)
    ids.insert(3, uuid.uuid4())
    batches = list(_chosen_in_batches(make_dataset(), ids))
    assert [[row.pk for row in batch] for batch in batches] == [
        [rows[4].pk],
        [rows[3].pk],
        [rows[2].pk, rows[1].pk],
        [rows[0].pk],
    ]
